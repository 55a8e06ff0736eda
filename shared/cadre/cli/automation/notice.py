"""`cadre notice`: web addresses that are told of runs; list, show, add, remove."""

from pathlib import Path

import click

from cadre.cli.terminal.automations import add_file, spec_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import table

_PATH = "/v1/notices"


@click.group("notice")
def command() -> None:
    """Notices: web addresses that are told of what happens to runs."""


@command.command("ls")
@output_option("table")
def list_notices(output: str) -> None:
    """List all notices."""
    with Gateway() as gateway:
        found = gateway.get(_PATH)["notices"]
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("no notices; make one with `cadre notice add FILE`", err=True)
    else:
        rows = [[one["name"], one["url"], ", ".join(one.get("events", ["all"]))] for one in found]
        click.echo(table(["NAME", "URL", "EVENTS"], rows))


@command.command("show")
@click.argument("name")
@output_option("text")
def show(name: str, output: str) -> None:
    """Show notice NAME."""
    with Gateway() as gateway:
        found = gateway.get(f"{_PATH}/{name}")
    print_json(found) if output == "json" else click.echo(spec_text(found))


@command.command("add")
@click.argument("file", type=click.Path(path_type=Path))
@output_option("text")
def add(file: Path, output: str) -> None:
    """Make or replace the notices in FILE."""
    with Gateway() as gateway:
        made = add_file(gateway, file)
    if output == "json":
        print_json(made)
    else:
        for one in made:
            click.echo(one["name"])


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def remove(names: tuple[str, ...]) -> None:
    """Remove notices; what is on its way is not delivered."""
    with Gateway() as gateway:
        for name in names:
            gateway.delete(f"{_PATH}/{name}")
