"""`cadre notice`: web addresses that are told of runs; list, show, add, remove."""

import click

from cadre.cli.terminal.automations import add_definition_verbs, state_and_maker
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import table

_PATH = "/v1/notices"


@click.group("notice")
def command() -> None:
    """Notices: web addresses that are told of what happens to runs."""


@command.command("list")
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
        rows = [
            [one["name"], one["url"], ", ".join(one.get("events", ["all"])), *state_and_maker(one)]
            for one in found
        ]
        click.echo(table(["NAME", "URL", "EVENTS", "STATE", "MAKER"], rows))


add_definition_verbs(command, "notice", "what is on its way is not delivered")
