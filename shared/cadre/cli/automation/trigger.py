"""`cadre trigger`: runs that messages and webhooks start; list, show, add, remove."""

from pathlib import Path

import click

from cadre.cli.terminal.automations import add_file, spec_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import table

_PATH = "/v1/triggers"


@click.group("trigger")
def command() -> None:
    """Triggers: runs that messages on the bus and signed webhooks start."""


@command.command("ls")
@output_option("table")
def list_triggers(output: str) -> None:
    """List all triggers."""
    with Gateway() as gateway:
        found = gateway.get(_PATH)["triggers"]
    if output == "json":
        print_json(found)
    elif not found:
        click.echo("no triggers; make one with `cadre trigger add FILE`", err=True)
    else:
        rows = [
            [one["name"], one["agent"], one.get("subject", "-"), "yes" if "webhook" in one else "-"]
            for one in found
        ]
        click.echo(table(["NAME", "AGENT", "SUBJECT", "WEBHOOK"], rows))


@command.command("show")
@click.argument("name")
@output_option("text")
def show(name: str, output: str) -> None:
    """Show trigger NAME."""
    with Gateway() as gateway:
        found = gateway.get(f"{_PATH}/{name}")
    print_json(found) if output == "json" else click.echo(spec_text(found))


@command.command("add")
@click.argument("file", type=click.Path(path_type=Path))
@output_option("text")
def add(file: Path, output: str) -> None:
    """Make or replace the triggers in FILE."""
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
    """Remove triggers; runs that they started go on."""
    with Gateway() as gateway:
        for name in names:
            gateway.delete(f"{_PATH}/{name}")
