"""`make bench-peers`: Cadre and its peers play the same work in turns; prints the ratios of medians and their range."""

import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import click
import uvloop

from bench.peers.systems import (
    Missing,
    System,
    cadre_delegations,
    cadre_runs,
    dbos,
    framework,
    restate,
    spent,
)
from bench.processes import ROOT, machine
from bench.report import Target

OUTPUT = ROOT / "build" / "bench-peers.json"


class Amount(NamedTuple):
    """The load of a round: runs one after another, then runs with `in_flight` at a time."""

    rounds: int
    singles: int
    crowd: int
    in_flight: int


PARTS = {
    "delegation": Amount(rounds=5, singles=40, crowd=200, in_flight=64),
    "run": Amount(rounds=5, singles=6, crowd=8, in_flight=8),
    "streamed-run": Amount(rounds=3, singles=4, crowd=8, in_flight=8),
}

METRICS = {
    "p50": ("p50", "ms", 1e3),
    "rate": ("per second, {0} in flight", "", 1.0),
    "cpu": ("CPU, 1 in flight", "ms", 1e3),
    "crowd_cpu": ("CPU, {0} in flight", "ms", 1e3),
}
"""A measured quantity, its unit, and how many of that unit are a second."""

TARGETS = {
    ("delegation", "Restate"): {"p50": Target(0.4), "rate": Target(2, True), "crowd_cpu": Target(0.5)},
    ("delegation", "its messages alone"): {"p50": Target(1.3), "crowd_cpu": Target(1.7)},
    ("run", "smolagents"): {"cpu": Target(1)},
    ("streamed-run", "smolagents"): {"cpu": Target(0.5)},
}

Figures = dict[str, list[float]]
"""Values of each metric, one a round."""
Peer = Callable[[], AbstractAsyncContextManager[System]]


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS]))
@click.option("--rounds", type=click.IntRange(1), help="How many rounds.")
@click.option("--singles", type=click.IntRange(1), help="How many in a round, one after another.")
@click.option("--crowd", type=click.IntRange(1), help="How many in a round, several at a time.")
@click.option("--in-flight", type=click.IntRange(2), help="How many at a time.")
def main(parts: tuple[str, ...], **amounts: int | None) -> None:
    """Measure all PARTS, or those that are named."""
    # What a closing connection makes the library say is not news here.
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    changed = {name: value for name, value in amounts.items() if value is not None}
    measured: dict[str, Any] = {}
    for part in parts or PARTS:
        amount = PARTS[part]._replace(**changed)
        found = uvloop.run(_measure(part, amount))
        measured[part] = {"amount": amount._asdict(), "systems": found}
        OUTPUT.parent.mkdir(exist_ok=True)
        OUTPUT.write_text(json.dumps({"parts": measured, "machine": machine()}, indent=2) + "\n")
        for line in table(part, amount, found):
            click.echo(line)
    click.echo(f"all figures: {os.path.relpath(OUTPUT)}")


async def _measure(part: str, amount: Amount) -> dict[str, Figures]:
    """Figures of each system that can be had, in turns."""
    async with AsyncExitStack() as stack:
        _say(f"{part}: starting")
        systems = await _DEPLOYED[part](stack)
        for system in systems:
            await system.play(amount.singles, 1)
            await system.play(amount.crowd, amount.in_flight)
        found: dict[str, Figures] = {system.name: {metric: [] for metric in METRICS} for system in systems}
        for number in range(amount.rounds):
            _say(f"{part}: round {number + 1} of {amount.rounds}")
            for system in systems:
                for metric, value in (await _round(system, amount)).items():
                    found[system.name][metric].append(value)
        return found


async def _round(system: System, amount: Amount) -> dict[str, float]:
    before = system.cpu()
    alone = await system.play(amount.singles, 1)
    between = system.cpu()
    crowd = await system.play(amount.crowd, amount.in_flight)
    after = system.cpu()
    return {
        "p50": median(alone.seconds),
        "rate": amount.crowd / crowd.took,
        "cpu": spent(before, between) / amount.singles,
        "crowd_cpu": spent(between, after) / amount.crowd,
    }


async def _delegations(stack: AsyncExitStack) -> list[System]:
    systems = await stack.enter_async_context(cadre_delegations())
    return systems + await started(stack, {"Restate": restate, "DBOS": dbos})


async def _runs(stack: AsyncExitStack, streams: bool) -> list[System]:
    url, own = await stack.enter_async_context(cadre_runs())
    peers = {
        title: partial(framework, name, title, url, streams)
        for name, title in (("smolagents", "smolagents"), ("langgraph", "LangGraph"))
    }
    return [own[streams], *await started(stack, peers)]


async def started(stack: AsyncExitStack, peers: Mapping[str, Peer]) -> list[System]:
    """The peers that can be had; says why the others cannot."""
    systems = []
    for title, peer in peers.items():
        try:
            systems.append(await stack.enter_async_context(peer()))
        except Missing as missing:
            _say(f"without {title}: {missing}")
    return systems


_DEPLOYED: dict[str, Callable[[AsyncExitStack], Awaitable[list[System]]]] = {
    "delegation": _delegations,
    "run": lambda stack: _runs(stack, streams=False),
    "streamed-run": lambda stack: _runs(stack, streams=True),
}


def table(part: str, amount: Amount, found: Mapping[str, Figures]) -> Iterator[str]:
    """Return what Cadre took, and that as ratios to each peer, as the lines of a table in Markdown."""
    own, *peers = found
    yield f"| {part} | {own} | {' | '.join(f'/ {name}' for name in peers)} |"
    yield f"|---{'|---:' * len(found)}|"
    for metric, (what, unit, scale) in METRICS.items():
        cells = [f"{median(found[own][metric]) * scale:,.1f} {unit}".rstrip()]
        for name in peers:
            target = TARGETS.get((part, name), {}).get(metric)
            cells.append(_ratio(found[own][metric], found[name][metric], target))
        yield f"| {what.format(amount.in_flight)} | {' | '.join(cells)} |"


def _ratio(own: Sequence[float], other: Sequence[float], target: Target | None) -> str:
    ratios = [mine / theirs for mine, theirs in zip(own, other, strict=True)]
    middle = median(own) / median(other)
    said = f"{middle:.2f} × ({min(ratios):.2f} – {max(ratios):.2f})"
    if target is None:
        return said
    return f"{said}, {target}: {'reached' if target.is_reached(middle) else '**missed**'}"


def _say(what: str) -> None:
    click.echo(f"bench-peers: {what}", err=True)


if __name__ == "__main__":
    main()
