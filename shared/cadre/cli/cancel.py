"""`cadre cancel`: ends a run and everything below it."""

from __future__ import annotations

import json

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option


@click.command("cancel")
@click.argument("run")
@click.option("--reason", default="", help="Why; kept in the run's journal.")
@output_option("text")
def command(run: str, reason: str, output: str) -> None:
    """Cancel RUN: an id, a unique beginning of one, or @last."""
    with Gateway() as gateway:
        identity = gateway.run_id(run)
        answer = gateway.post(f"/v1/runs/{identity}/cancel", {"reason": reason} if reason else {})
    click.echo(json.dumps(answer) if output == "json" else f"{answer['id']} {answer['state']}")
