"""`cadre show`: one run, its children, its memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from textwrap import indent
from typing import Any

import click

from cadre.cli.run import finish
from cadre.cli.runs import state, tokens, took
from cadre.cli.terminal.answer import as_text, tell
from cadre.cli.terminal.memory_text import told
from cadre.cli.terminal.run_text import Fetch, played
from cadre.cli.terminal.run_tree import error_text
from cadre.cli.terminal.screen import screen
from cadre.cli.terminal.table import brief, call_text, seconds
from cadre.cli.terminal.watch import Detached, watch
from cadre.client.gateway import Gateway, connect
from cadre.local.exit_codes import Code


@click.command("show")
@click.argument("run")
@click.option("--tree", "as_tree", is_flag=True, help="Only the run and the runs below it, a line each.")
@click.option("--full", is_flag=True, help="The steps of its memory as well.")
@click.option(
    "--replay",
    "played_back",
    is_flag=True,
    help="Play its steps; with --full those of the runs below it, too.",
)
@click.option(
    "-f", "--follow", "following", is_flag=True, help="Follow it until it ends. Ctrl-C leaves it running."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(run: str, as_tree: bool, full: bool, played_back: bool, following: bool, output: str) -> int:
    """Show RUN: an id, a unique beginning of one, or @last."""
    if played_back and (as_tree or following):
        raise click.UsageError("--replay goes with --full and -o only")
    with Gateway() as gateway:
        identity = gateway.run_id(run)
        if not following:
            found = gateway.get(f"/v1/runs/{identity}", full="true" if full or played_back else None)
            if played_back and output == "text":
                tell("\n".join(played(found, _fetch(gateway) if full else None)))
                return Code.OK
            waiting = []
            if found.get("approvals") and output == "text" and not as_tree:
                waiting = gateway.get("/v1/approvals", run=identity, limit=100)["approvals"]
    if following:
        return asyncio.run(_follow(gateway.url, identity, output))
    if output == "json":
        click.echo(json.dumps(found, ensure_ascii=False))
    elif as_tree:
        click.echo("\n".join(_branches(found)))
    else:
        tell("\n".join(_account(found, full, waiting)))
    return Code.OK


def _fetch(gateway: Gateway) -> Fetch:
    return lambda run: gateway.get(f"/v1/runs/{run}", full="true")


async def _follow(url: str, run: str, output: str) -> int:
    async with connect(url) as client:
        try:
            return finish(await watch(client, run, screen(), ctrl_c="leaves"), output)
        except Detached:
            click.echo(f"cadre: run {run} goes on: `cadre show {run} --follow` looks again", err=True)
            return Code.DETACHED


def _account(run: dict[str, Any], full: bool, waiting: list[dict[str, Any]]) -> Iterator[str]:
    yield f"run      {run['id']}"
    yield f"agent    {run['agent']}"
    yield f"state    {_facts(run)}"
    if run.get("started_at"):
        yield f"started  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(run['started_at']))}"
    if run.get("deadline"):
        left = run["deadline"] - time.time()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run["deadline"]))
        yield f"deadline {when}" + (f", in {seconds(left)}" if left > 0 and not run.get("ended_at") else "")
    if run.get("budget"):
        yield f"budget   {', '.join(f'{value:g} {key}' for key, value in run['budget'].items())}"
    if run.get("forked_from"):
        yield f"fork of  {run['forked_from']['run']} at step {run['forked_from']['at']}"
    if run.get("parent"):
        yield f"parent   {run['parent']}"
    if run.get("session"):
        yield f"session  {run['session']}"
    yield f"task     {brief(run.get('task') or '', 200)}"
    for call in waiting:
        yield f"waits    {call_text(call['name'], call['arguments'])}  ({brief(call['reason'], 100)})"
        yield f"         cadre approve {call['call']}"
    if run.get("error"):
        yield f"error    {brief(error_text(run['error']), 2000)}"
    if run.get("children"):
        yield "children"
        for child in _in_order(run):
            yield from _branches(child, "  ")
    if full:
        yield "memory"
        # The answer that ends it follows below.
        memory = run.get("memory") or []
        if memory and memory[-1].get("type") == "answer":
            memory = memory[:-1]
        yield from (indent(text, "  ") for text in told(memory))
    if run.get("output") is not None:
        yield "answer"
        yield as_text(run["output"])


def _facts(run: dict[str, Any]) -> str:
    cost = (run.get("usage") or {}).get("cost") or 0
    priced = f", cost {cost:.4g}" if cost else ""
    return f"{state(run)}, step {run.get('step') or 0}, {tokens(run)} tokens{priced}, {took(run)}"


def _branches(run: dict[str, Any], indent: str = "") -> Iterator[str]:
    yield f"{indent}{run['id']}  {run['agent']}  {_facts(run)}  {brief(run.get('task') or '', 80)}"
    for child in _in_order(run):
        yield from _branches(child, indent + "  ")


def _in_order(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Children by step and place in it, which their ids end in."""
    return sorted(run.get("children") or [], key=lambda child: [int(n) for n in child["id"].split("_")[-2:]])
