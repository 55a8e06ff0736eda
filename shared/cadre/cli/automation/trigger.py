"""`cadre trigger`: runs that messages and webhooks start; list, show, add, remove."""

import click

from cadre.cli.terminal.automations import add_definition_verbs, state_and_maker
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_json
from cadre.cli.terminal.table import table

_PATH = "/v1/triggers"


@click.group("trigger")
def command() -> None:
    """Triggers: runs that messages on the bus and signed webhooks start."""


@command.command("list")
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
            [
                *(one["name"], one["agent"], one.get("subject", "-"), "yes" if "webhook" in one else "-"),
                *state_and_maker(one),
            ]
            for one in found
        ]
        click.echo(table(["NAME", "AGENT", "SUBJECT", "WEBHOOK", "STATE", "MAKER"], rows))


add_definition_verbs(command, "trigger", "runs that they started go on")
