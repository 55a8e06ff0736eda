"""`cadre shards`: over how many streams a deployment's runs are spread, and more of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from cadre.adapters.local_stack import find_nats
from cadre.errors import SetupError
from cadre.protocol.generations import Layout
from cadre.protocol.topology import Topology
from cadre.settings import Settings, read_settings

if TYPE_CHECKING:
    from cadre.adapters.nats.connection.connect import NatsClient

T = TypeVar("T")

_WAIT_SECONDS = 60.0


@click.group("shards")
def command() -> None:
    """The streams that the deployment's runs are spread over. With NATS users these take the operator's key."""


@command.command("list")
def list_shards() -> None:
    """Print each generation of shards with its streams, the newest last: new runs begin in that one."""
    from cadre.adapters.nats.streams.provision import existing

    find_nats()
    settings = read_settings()
    topology = _connected(settings, lambda nc: existing(nc, settings))
    if topology is None:
        raise SetupError(f"there is no deployment of the prefix {settings.prefix!r} yet")
    for line in _lines(topology):
        click.echo(line)


@command.command("grow")
@click.argument("shards", type=click.IntRange(min=1), metavar="COUNT")
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=_WAIT_SECONDS,
    show_default=True,
    help="Seconds in which live services must take from the new shards.",
)
def grow_shards(shards: int, seconds: float) -> None:
    """Let the deployment grow to COUNT shards while its services work. Runs that have begun stay where they are; new
    ones begin in all COUNT shards.

    It makes the streams and their queues, waits until all live services take from them, and only then lets runs begin
    there. What was cut off at any moment goes on when it is called again. Shards never become fewer.
    """
    from cadre.adapters.nats.streams.growth import grow

    find_nats()
    settings = read_settings()

    def tell(line: str) -> None:
        click.echo(line, err=True)

    layout = _connected(settings, lambda nc: grow(nc, settings, shards, seconds, tell))
    click.echo(f"new runs begin in {layout.shards} shards: {layout}")


def _lines(topology: Topology) -> list[str]:
    layout: Layout = topology.layout
    lines = [
        f"{number}\t{shards} shards\t{topology.stream(0)} to {topology.stream(shards - 1)}"
        + ("\tnew runs" if number == len(layout.generations) else "")
        for number, shards in enumerate(layout.generations, 1)
    ]
    if layout.growing:
        lines.append(
            f"{len(layout.generations) + 1}\t{layout.growing} shards\tnot open yet:"
            f" cadre shards grow {layout.growing}"
        )
    return lines


def _connected(settings: Settings, work: Callable[[NatsClient], Awaitable[T]]) -> T:
    from cadre.adapters.nats.connection.connect import connect

    async def run() -> T:
        nc = await connect(settings, "cadre shards", wait=False)
        try:
            return await work(nc)
        finally:
            await nc.close()

    return asyncio.run(run())
