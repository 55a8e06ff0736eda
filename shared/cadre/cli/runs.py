"""`cadre runs`: the list of runs, newest first."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from cadre.cli.gateway import Gateway
from cadre.cli.table import brief, number, seconds, table

STATES = ["running", "waiting", "success", "max_steps_error", "error", "cancelled"]


@click.command("runs")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--session", metavar="NAME", help="Only runs of this conversation.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(agent: str | None, state: str | None, session: str | None, limit: int, output: str) -> None:
    """List root runs, newest first."""
    with Gateway() as gateway:
        runs = gateway.get("/v1/runs", agent=agent, state=state, session=session, limit=limit)["runs"]
    if output == "json":
        click.echo(json.dumps(runs, ensure_ascii=False))
    elif not runs:
        click.echo('no runs: start one with `cadre run AGENT "TASK"`', err=True)
    else:
        click.echo(
            table(["RUN", "AGENT", "STATE", "STEP", "TOKENS", "TOOK", "TASK"], [_row(run) for run in runs])
        )


def _row(run: dict[str, Any]) -> list[str]:
    return [
        run["id"],
        run["agent"],
        run["state"],
        str(run.get("step") or 0),
        tokens(run),
        took(run),
        brief(run.get("task") or "", 200),
    ]


def tokens(run: dict[str, Any]) -> str:
    usage = run.get("usage") or {}
    return number(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))


def took(run: dict[str, Any]) -> str:
    """How long the run took, or has taken until now."""
    started = run.get("started_at")
    return seconds((run.get("ended_at") or time.time()) - started) if started else "-"
