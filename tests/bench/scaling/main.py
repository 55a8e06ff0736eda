"""`make bench-scale`: what grows with load, with kept runs, and with the length of a run."""

import logging
import sys
from collections.abc import Callable
from functools import partial

import click

from bench.scaling import (
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
}


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS]))
@click.option("--runs", "sizes", help="How many kept runs, with commas between.")
def main(parts: tuple[str, ...], sizes: str | None) -> None:
    """Measure all PARTS, or those that are named."""
    # What a killed process or a closing connection makes the library say is not news here.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    chosen = {part: PARTS[part] for part in parts or PARTS}
    if sizes and "runs" in chosen:
        chosen["runs"] = partial(kept_runs.run, sorted(int(one) for one in sizes.split(",")))
    for part, measure in chosen.items():
        say(part)
        measure()


if __name__ == "__main__":
    main()
