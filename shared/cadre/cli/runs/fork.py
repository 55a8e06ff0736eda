"""`cadre fork` and `cadre resume`: a new run from a step of another one, or from where that ended without an
answer; followed like `cadre run`."""

import asyncio
from typing import Any

import click

from cadre.cli.runs.launch import launch
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import bound_options, bounds, following_options, key_values, utf8
from cadre.client.transport import RUNS


@click.command("fork")
@click.argument("run")
@click.option("--at", required=True, type=click.IntRange(min=1), metavar="STEP", help="The step to begin with.")
@click.option("--task", metavar="TEXT", help="Another task.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Input, new or in place of one; JSON if it parses.",
)
@bound_options
@click.option(
    "--observation",
    "observations",
    multiple=True,
    metavar="CALL=TEXT",
    help="What a call of the steps before came to instead; CALL is <step>_<index> or its id.",
)
@following_options("the new run")
def command(run: str, **options: Any) -> int:
    """Start a new run from RUN (an id, a unique beginning of one, or @last) at one of its steps.

    The steps before are its memory: nothing of them is done again. From there on it goes its own way, with
    the agent as it is now. Steps, deadline and budget that are left out are RUN's own, from the start.
    """
    with Gateway() as gateway:
        source = gateway.run_id(run)
    request = {
        "at": options["at"],
        "task": utf8("--task", options["task"]) if options["task"] is not None else None,
        "inputs": key_values("--input", options["inputs"]),
        **bounds(options),
        "observations": _observations(options["observations"]),
    }
    request = {key: value for key, value in request.items() if value not in (None, {})}
    return asyncio.run(launch(request, options, f"{RUNS}/{source}/fork"))


def _observations(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        call, mark, observation = text.partition("=")
        if not mark or not call:
            raise click.UsageError(f"--observation {text!r}: write CALL=TEXT, as in 2_0=nothing found")
        if call in found:
            raise click.UsageError(f"--observation {call} is given more than once")
        found[call] = utf8(f"--observation {call}", observation)
    return found


@click.command("resume")
@click.argument("run")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many steps more; left out: as many as RUN had.",
)
@following_options("the new run")
def resume(run: str, steps: int | None, **options: Any) -> int:
    """Go on where RUN (an id, a unique beginning of one, or @last) ended without an answer.

    Its steps are the new run's memory: nothing of them is done again. Deadline and budget are RUN's own and start
    again.
    """
    with Gateway() as gateway:
        source = gateway.run_id(run)
    request = {"steps": steps} if steps is not None else {}
    return asyncio.run(launch(request, options, f"{RUNS}/{source}/resume"))
