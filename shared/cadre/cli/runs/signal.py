"""`cadre signal`: sends a run a signal that it waits for, or will wait for."""

import json
import sys
from typing import Any

import click

from cadre.cli.terminal.gateway import Gateway, command_errors
from cadre.cli.terminal.options import json_value, output_option


@click.command("signal")
@click.argument("run")
@click.argument("name")
@click.argument("payload", required=False)
@click.option("--by", default="", metavar="NAME", help="Who sends it; kept in the run's journal.")
@output_option("text")
def command(run: str, name: str, payload: str | None, by: str, output: str) -> None:
    """Send RUN the signal NAME, with PAYLOAD as JSON (`-`: from the standard input).

    RUN is an id, a unique beginning of one, or @last. A signal that comes before the run waits for it is kept.
    """
    text = sys.stdin.read() if payload == "-" else payload
    content = None if text is None else json_value("PAYLOAD", text)
    with Gateway() as gateway:
        identity = gateway.run_id(run)
    sent = send(gateway.url, identity, name, content, by)
    if output == "json":
        click.echo(json.dumps(sent))
    else:
        later = "" if sent["at"] is not None else " (kept until its agent is there)"
        click.echo(f"{identity} {name}{later}")


def send(url: str, run: str, name: str, payload: Any, by: str) -> dict[str, Any]:
    """Sends the signal; a request that was lost is sent again."""
    from cadre.client.sync_client import Client  # the client's weight is not the help's

    with command_errors(), Client(url) as client:
        sent = client.attach(run).signal(name, payload, by=by)
    return {"id": sent.id, "run": sent.run, "at": sent.at}
