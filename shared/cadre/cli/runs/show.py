"""`cadre show`: one run, its children, its memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import click

from cadre.cli.run_view.run_text import (
    Fetch,
    branches,
    playback,
    prompt_lines,
    shown_plan,
    shown_queue,
    summary,
)
from cadre.cli.run_view.screen import screen
from cadre.cli.runs.launch import Detached, print_outcome, watch
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_found
from cadre.cli.terminal.output import print_text
from cadre.errors import CommandFailed, ExitCode


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
    "--prompt",
    type=click.IntRange(0),
    metavar="STEP",
    help="What its agent sent to the model in this step: messages, tools, options.",
)
@click.option("-f", "--follow", "following", is_flag=True, help="Follow it until it ends. Ctrl-C leaves it running.")
@output_option("text")
def command(  # noqa: PLR0913 - one for each option
    run: str, as_tree: bool, full: bool, played_back: bool, prompt: int | None, following: bool, output: str
) -> int:
    """Show RUN: an id, a unique beginning of one, or @last."""
    if prompt is not None and (as_tree or full or played_back or following):
        raise click.UsageError("--prompt goes with -o only")
    if played_back and (as_tree or following):
        raise click.UsageError("--replay goes with --full and -o only")
    with Gateway() as gateway:
        identity = gateway.run_id(run)
        if prompt is not None:
            return _show_prompt(gateway, identity, prompt, output)
        if not following:
            found = gateway.get(f"/v1/runs/{identity}", full="true" if full or played_back else None)
            if played_back and output == "text":
                print_text("\n".join(playback(found, _fetch(gateway) if full else None)))
                return ExitCode.OK
            waiting, edited = [], []
            if output == "text" and not as_tree:
                edited = [*_plan(gateway, identity), *_queue(gateway, identity)]
            if found.get("approvals") and output == "text" and not as_tree:
                waiting = _waiting(gateway, identity)
    if following:
        return asyncio.run(_follow(gateway.url, identity, output))
    print_found(output, found, lambda: branches(found) if as_tree else summary(found, waiting, edited, full=full))
    return ExitCode.OK


def _waiting(gateway: Gateway, run: str) -> list[dict[str, Any]]:
    """Return the calls that wait for a person; none where the gateway cannot list anything now, which is said."""
    try:
        return list(gateway.get("/v1/approvals", run=run, limit=100)["approvals"])
    except CommandFailed as failure:
        if failure.code != ExitCode.UNREACHABLE:
            raise
        print_text(f"cadre: the calls that wait are not listed: {failure.message}", err=True)
        return []


def _show_prompt(gateway: Gateway, run: str, step: int, output: str) -> int:
    request = gateway.get(f"/v1/runs/{run}/steps/{step}/request")
    print_found(output, request, lambda: prompt_lines(request))
    return ExitCode.OK


def _plan(gateway: Gateway, run: str) -> Iterator[str]:
    state = _state_of(gateway, run, "plan")
    yield from shown_plan(state) if state is not None else ()


def _queue(gateway: Gateway, run: str) -> Iterator[str]:
    state = _state_of(gateway, run, "queue")
    if state is not None:
        yield f"queue    {len(state['done'])} done, {len(state['pending'])} to be begun"
        yield from shown_queue(state)


def _state_of(gateway: Gateway, run: str, what: str) -> dict[str, Any] | None:
    """Return the run's plan or queue; None for a run of a kind that has none."""
    try:
        return dict(gateway.get(f"/v1/runs/{run}/{what}")["state"])
    except CommandFailed as failure:
        if failure.code is not ExitCode.NOT_FOUND:
            raise
        return None


def _fetch(gateway: Gateway) -> Fetch:
    return lambda run: gateway.get(f"/v1/runs/{run}", full="true")


async def _follow(url: str, run: str, output: str) -> int:
    from cadre.client.client import AsyncClient  # the client's weight is not the help's

    async with AsyncClient(url) as client:
        try:
            return print_outcome(await watch(client, run, screen(), ctrl_c="leaves"), output)
        except Detached:
            click.echo(f"cadre: run {run} goes on: `cadre show {run} --follow` looks again", err=True)
            return ExitCode.DETACHED
