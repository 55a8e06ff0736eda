"""`make bench-scale`: what grows with load, with kept runs, and with the length of a run."""

import logging
import sys
from collections.abc import Callable
from functools import partial

import click

from bench.scaling import (
    growth,
    hanging_members,
    kept_runs,
    long_conversation,
    long_journal,
    open_calls,
    replicas,
)
from bench.scaling.table import say

PARTS: dict[str, Callable[[], None]] = {
    "replicas": replicas.run,
    "open-calls": open_calls.run,
    "long-journal": long_journal.run,
    "long-conversation": long_conversation.run,
    "hanging-members": hanging_members.run,
    "runs": kept_runs.run,
    "growth": growth.run,
}


def _sizes(_context: click.Context, _option: click.Parameter, value: str | None) -> list[int]:
    sizes = sorted({int(one) if one.strip().isdecimal() else 0 for one in (value or "").split(",") if value})
    if sizes and not sizes[0]:
        raise click.BadParameter("write whole numbers from 1, with commas between: 1000,10000")
    return sizes


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS]))
@click.option("--runs", "sizes", metavar="N,…", callback=_sizes, help="How many kept runs, with commas between.")
def main(parts: tuple[str, ...], sizes: list[int]) -> None:
    """Measure all PARTS, or those that are named."""
    # What a killed process or a closing connection makes the library say is not news here.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    chosen = {part: PARTS[part] for part in parts or PARTS}
    if sizes and "runs" in chosen:
        chosen["runs"] = partial(kept_runs.run, sizes)
    elif sizes and "growth" in chosen:
        if len(sizes) == 1:
            raise click.BadParameter("growth compares few kept runs with many: --runs=20000,1000000")
        chosen["growth"] = partial(growth.run, sizes)
    for part, measure in chosen.items():
        say(part)
        measure()


if __name__ == "__main__":
    main()
