"""`cadre cancel`: ends a run and everything below it."""

import json

import click

from cadre.cli.terminal.gateway import Gateway, command_errors
from cadre.cli.terminal.options import output_option
from cadre.client.errors import TimedOut

_END_SECONDS = 10.0
"""How long the command waits for the run to end."""


@click.command("cancel")
@click.argument("run")
@click.option("--reason", default="", help="Why; kept in the run's journal.")
@click.option("--now", is_flag=True, help="End it at once: what it has done is not made up for first.")
@output_option("text")
def command(run: str, reason: str, now: bool, output: str) -> None:
    """Cancel RUN: an id, a unique beginning of one, or @last."""
    with Gateway() as gateway:
        identity = gateway.run_id(run)
        asked = ({"reason": reason} if reason else {}) | ({"now": True} if now else {})
        answer = gateway.post(f"/v1/runs/{identity}/cancel", asked)
    if answer["state"] in ("queued", "running", "waiting"):
        answer["state"] = _end_state(gateway.url, identity)
    click.echo(json.dumps(answer) if output == "json" else f"{answer['id']} {answer['state']}")


def _end_state(url: str, run: str) -> str:
    from cadre.client.sync_client import Client  # the client's weight is not the help's

    with command_errors(), Client(url) as client:
        handle = client.attach(run)
        try:
            return handle.wait(_END_SECONDS).state
        except TimedOut:
            click.echo(
                "cadre: it ends once its agent has taken the request up and made up for what it did;"
                " `cadre cancel --now` does not wait for that",
                err=True,
            )
            return handle.detail().state
