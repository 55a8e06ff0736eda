"""`cadre tell`: says something to a run that is under way."""

import json
import sys

import click

from cadre.cli.terminal.gateway import Gateway, command_errors
from cadre.cli.terminal.options import output_option
from cadre.protocol.messages import MessageMode


@click.command("tell")
@click.argument("run")
@click.argument("text")
@click.option(
    "--mode",
    type=click.Choice(["append", "next", "interrupt"]),
    default="append",
    show_default=True,
    help="When it is read: with the next model call; so, and before calls that have not begun; at once.",
)
@click.option("--by", default="", metavar="NAME", help="Who says it; kept in the run's journal.")
@output_option("text")
def command(run: str, text: str, mode: MessageMode, by: str, output: str) -> None:
    """Say TEXT to RUN (`-`: from the standard input); its model reads it with its next call.

    RUN is an id, a unique beginning of one, or @last: any run of a tree.
    """
    from cadre.client.sync_client import Client  # the client's weight is not the help's

    with Gateway() as gateway:
        identity = gateway.run_id(run)
    with command_errors(), Client(gateway.url) as client:
        sent = client.attach(identity).tell(sys.stdin.read() if text == "-" else text, mode=mode, by=by)
    if output == "json":
        click.echo(json.dumps({"id": sent.id, "run": sent.run, "at": sent.at}))
    else:
        click.echo(
            f"{identity} {'has it' if sent.at is not None else 'will have it once its agent is there'}"
        )
