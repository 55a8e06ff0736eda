"""`cadre runs`: the list of runs, newest first, and what is done with a run as a whole."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from click.core import ParameterSource

from cadre.cli.archive import erase, export_run, import_run
from cadre.cli.terminal.table import brief, number, seconds, table
from cadre.client.gateway import Gateway

_GIVEN = ParameterSource.COMMANDLINE

STATES = ["running", "waiting", "success", "max_steps_error", "error", "cancelled"]


@click.group("runs", invoke_without_command=True)
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--session", metavar="NAME", help="Only runs of this conversation.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def command(
    ctx: click.Context,
    agent: str | None,
    state: str | None,
    session: str | None,
    limit: int,
    output: str,
) -> None:
    """List root runs, newest first; or erase, export or import whole runs."""
    if ctx.invoked_subcommand is None:
        _list(limit, output, agent=agent, state=state, session=session)
    elif given := [name for name in ctx.params if ctx.get_parameter_source(name) is _GIVEN]:
        raise click.UsageError(f"--{given[0]} is about the list, not about `{ctx.invoked_subcommand}`", ctx)


for _subcommand in (erase, export_run, import_run):
    command.add_command(_subcommand)


def _list(limit: int, output: str, **which: str | None) -> None:
    with Gateway() as gateway:
        runs = gateway.get("/v1/runs", limit=limit, **which)["runs"]
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
        state(run),
        str(run.get("step") or 0),
        tokens(run),
        took(run),
        brief(run.get("task") or "", 200),
    ]


def state(run: dict[str, Any]) -> str:
    """The state, what it waits for, and how many calls of its tree wait for a person."""
    told = str(run["state"])
    if run.get("waiting_for") == "model":
        told += " for model"
    held = run.get("approvals") or 0
    return f"{told}, {held} to approve" if held else told


def tokens(run: dict[str, Any]) -> str:
    usage = run.get("usage") or {}
    return number(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))


def took(run: dict[str, Any]) -> str:
    """How long the run took, or has taken until now."""
    started = run.get("started_at")
    return seconds((run.get("ended_at") or time.time()) - started) if started else "-"
