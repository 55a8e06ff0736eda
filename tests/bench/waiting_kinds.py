"""`make waiting`: runs that wait, in each kind of agent. They are to cost the process of their agent nothing."""

import sys

import click
import uvloop

from bench.deployment import deployment
from bench.held import REFUND, WAITING
from bench.processes import Member, rss_mb
from bench.waiting import begin, put_aside
from cadre.protocol.cards import Presence

FEWER, MORE = 600, 2_000
"""The first ones fill what an agent keeps of its latest runs."""


async def measure(name: str) -> tuple[float, float, float]:
    """Resident MB of the agent's process: with no run, with the fewer, with the more of them."""
    async with deployment() as here:
        offer = Presence(instance="bench", host="bench", pid=0, started_at=0.0, tool=REFUND)
        await here.platform.registry.announce([offer])
        agent = await Member.start(here.nats.url, here.platform.topology.shards, "--waits", name)
        try:
            await here.offered("clerk")
            found = [rss_mb(agent.pid)]
            for count in (FEWER, MORE - FEWER):
                await begin(here, count)
                await put_aside(here)
                found.append(rss_mb(agent.pid))
            return found[0], found[1], found[2]
        finally:
            await agent.stop()


def main() -> None:
    """Measures every kind, or those whose names begin with an argument."""
    click.echo(f"| {MORE:,} runs wait | before | {FEWER} | {MORE:,} |\n|---|---:|---:|---:|")
    for name in WAITING:
        if not sys.argv[1:] or name.startswith(tuple(sys.argv[1:])):
            before, fewer, more = uvloop.run(measure(name))
            click.echo(f"| {name} | {before:.1f} MB | {fewer:.1f} MB | {more:.1f} MB |")


if __name__ == "__main__":
    main()
