"""`make waiting`: runs that wait, in each kind of agent. They are to cost the process of their agent nothing.

Arguments: beginnings of kinds' names (all), and a further number of runs, which `make waiting RUNS=…` gives."""

import itertools
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import click
import uvloop

from bench.deployment import deployment
from bench.held import REFUND, WAITING
from bench.processes import Member, rss_mb
from bench.steps import running_service
from bench.waiting import begin, put_aside
from cadre.protocol.cards import Presence

SIZES = (600, 2_000)
"""The first ones fill what an agent keeps of its latest runs."""


async def measure(name: str, sizes: Sequence[int]) -> list[float]:
    """Resident MB of the agent's process: with no run, then with each number of them."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(deployment())
        offer = Presence(instance="bench", host="bench", pid=0, started_at=0.0, tool=REFUND)
        await here.platform.registry.announce([offer])
        before = []
        if WAITING[name].kind == "code":
            shards = str(here.platform.topology.shards)
            await stack.enter_async_context(running_service(here, "cadre_sandbox", CADRE_SHARDS=shards))
            before.append(here.platform.topology.code_consumer("default"))
        agent = await Member.start(here.nats.url, here.platform.topology.shards, "--waits", name)
        try:
            await here.offered("clerk")
            found = [rss_mb(agent.pid)]
            for begun, size in itertools.pairwise((0, *sizes)):
                await begin(here, size - begun)
                await put_aside(here, *before)
                found.append(rss_mb(agent.pid))
            return found
        finally:
            await agent.stop()


def main() -> None:
    """Measures every kind, or those whose names begin with an argument."""
    names = tuple(one for one in sys.argv[1:] if not one.isdigit())
    sizes = sorted({*SIZES, *(int(one) for one in sys.argv[1:] if one.isdigit())})
    click.echo(
        f"| runs that wait | 0 | {' | '.join(f'{size:,}' for size in sizes)} |\n|---{'|---:' * (len(sizes) + 1)}|"
    )
    for name in WAITING:
        if not names or name.startswith(names):
            found = " | ".join(f"{one:.1f} MB" for one in uvloop.run(measure(name, sizes)))
            click.echo(f"| {name} | {found} |")


if __name__ == "__main__":
    main()
