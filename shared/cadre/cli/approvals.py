"""`cadre approvals`: the calls that wait for a person."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from cadre.cli.terminal.decide import PATH
from cadre.cli.terminal.table import brief, call_text, seconds, table
from cadre.client.gateway import Gateway


@click.command("approvals")
@click.option("--agent", metavar="NAME", help="Only calls of this agent.")
@click.option("--run", metavar="RUN", help="Only calls of this run and the runs below it.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(agent: str | None, run: str | None, limit: int, output: str) -> None:
    """List the calls that wait for a person, newest first."""
    with Gateway() as gateway:
        identity = gateway.run_id(run) if run is not None else None
        page = gateway.get(PATH, agent=agent, run=identity, limit=limit)
    calls = page["approvals"]
    if output == "json":
        click.echo(json.dumps(calls, ensure_ascii=False))
    elif not calls:
        click.echo("no call waits for a person", err=True)
    else:
        now = time.time()
        rows = [_row(call, now) for call in calls]
        click.echo(table(["CALL", "AGENT", "WAITS", "EXPIRES", "WHY", "ASKS FOR"], rows))
        if page["next"] is not None:
            click.echo("cadre: there are more: --limit shows them", err=True)


def _row(call: dict[str, Any], now: float) -> list[str]:
    expires = call.get("expires")
    return [
        call["call"],
        call["agent"],
        seconds(max(0.0, now - call["requested_at"])),
        "-" if expires is None else f"in {seconds(expires - now)}" if expires > now else "now",
        brief(call["reason"], 40),
        call_text(call["name"], call["arguments"], 200),
    ]
