"""`cadre continue`: a new run that goes on where another one ended without an answer, followed like `cadre run`."""

import asyncio
from typing import Any

import click

from cadre.cli.runs.launch import launch
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import following_options
from cadre.client.transport import RUNS


@click.command("continue")
@click.argument("run")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many steps more; left out: as many as RUN had.",
)
@following_options("the new run")
def command(run: str, steps: int | None, **options: Any) -> int:
    """Go on where RUN (an id, a unique beginning of one, or @last) ended without an answer.

    Its steps are the new run's memory: nothing of them is done again. Deadline and budget are RUN's own, anew.
    """
    with Gateway() as gateway:
        source = gateway.run_id(run)
    request = {"steps": steps} if steps is not None else {}
    return asyncio.run(launch(request, options, f"{RUNS}/{source}/continue"))
