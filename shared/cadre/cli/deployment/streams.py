"""`cadre provision`: the streams and consumers of a team, created before its services start; `cadre shards`: over
how many streams runs are spread, and more of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from cadre.adapters.local_stack import find_nats
from cadre.adapters.tool_entries import load_entry
from cadre.deploy.team_file import read_team
from cadre.errors import SetupError, SpecError
from cadre.protocol.nats_users import Role, redacted
from cadre.protocol.topology import Layout, Topology
from cadre.settings import Settings, read_settings
from cadre.spec.agent import AgentSpec, decode_spec
from cadre.spec.agent_file import read_agent
from cadre.spec.names import check_name

if TYPE_CHECKING:
    from cadre.adapters.nats.connection.connect import NatsClient

T = TypeVar("T")

_WAIT_SECONDS = 60.0


@click.group("shards")
def shards() -> None:
    """The streams that the deployment's runs are spread over. With NATS users these take the operator's key."""


@shards.command("list")
def list_shards() -> None:
    """Print each generation of shards with its streams, the newest last: new runs begin in that one."""
    from cadre.adapters.nats.streams.provision import existing

    find_nats()
    settings = read_settings()
    topology = connected(settings, lambda nc: existing(nc, settings))
    if topology is None:
        raise SetupError(f"there is no deployment of the prefix {settings.prefix!r} yet")
    for line in _shard_lines(topology):
        click.echo(line)


@shards.command("grow")
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

    layout = connected(settings, lambda nc: grow(nc, settings, shards, seconds, tell))
    click.echo(f"new runs begin in {layout.shards} shards: {layout}")


def _shard_lines(topology: Topology) -> list[str]:
    layout: Layout = topology.layout
    lines = [
        f"{number}\t{shards} shards\t{topology.stream(0)} to {topology.stream(shards - 1)}"
        + ("\tnew runs" if number == len(layout.generations) else "")
        for number, shards in enumerate(layout.generations, 1)
    ]
    if layout.growing:
        lines.append(
            f"{len(layout.generations) + 1}\t{layout.growing} shards\tnot open yet: cadre shards grow {layout.growing}"
        )
    return lines


def connected(settings: Settings, work: Callable[[NatsClient], Awaitable[T]]) -> T:
    """Return what `work` makes of a connection to NATS, which is closed then. Raises CadreError."""
    from cadre.adapters.nats.connection.connect import connect

    async def run() -> T:
        nc = await connect(settings, click.get_current_context().command_path, wait=False)
        try:
            return await work(nc)
        finally:
            await nc.close()

    return asyncio.run(run())


@click.command("provision")
@click.argument("team", required=False, type=click.Path(path_type=Path))
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="An agent that will be served.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="A tool that will be served.")
@click.option("--pool", "pools", multiple=True, metavar="NAME", help="A sandbox pool that will be served.")
@click.option(
    "--service",
    "services",
    multiple=True,
    type=click.Choice(["memory", "tracer"]),
    help="A service that will run.",
)
@click.option(
    "--at-rest",
    "at_rest",
    multiple=True,
    metavar="FILE|SPEC",
    help="An agent that may have no replica: its file, or its specification as JSON.",
)
def provision(
    *,
    team: Path | None,
    agents: tuple[str, ...],
    tools: tuple[str, ...],
    pools: tuple[str, ...],
    services: tuple[str, ...],
    at_rest: tuple[str, ...],
) -> None:
    """Create the streams and buckets, and the queues of TEAM's services and of those named.

    Services do the same when they start. It matters where they start because something waits: an autoscaler that
    begins at none; and where services have NATS users of their own, which may not make them: then this is run with
    the operator's key. What is there already stays as it is.

    An agent --at-rest keeps a card in the registry, by which it is sent tasks, and offered to its managers, while no
    replica serves it: an autoscaler starts one for what waits in its queues. `cadre retire` takes the card away,
    and so does this command when it names the agent without --at-rest.
    """
    from cadre.adapters.nats.queues.consumers import provision_roles  # the bus's weight is not the help's

    for option, names in (("--agent: the", agents), ("--tool: the", tools), ("--pool: the", pools)):
        for name in names:
            check_name(option, name)
    used = {*services}
    if team is not None:
        found = read_team(team)
        agents += tuple(found.agents)
        tools += tuple(tool.name for entry in found.tools for tool in load_entry(entry))
        pools += (*found.pools, *found.programs)
        used |= {"tracer", *(["memory"] if found.needs_memory else [])}
    resting = [_spec(one) for one in at_rest]
    agents += tuple(spec.name for spec in resting)
    roles = [Role(kind="gateway"), Role(kind="tools", tools=tuple(sorted({*tools})))]
    roles += [Role(kind="agent", name=name) for name in sorted({*agents})]
    roles += [Role(kind="sandbox", name=pool) for pool in sorted({*pools})]
    roles += [Role(kind=kind) for kind in ("memory", "tracer") if kind in used]
    find_nats()
    settings = read_settings()
    topology = asyncio.run(provision_roles(settings, roles, resting))
    consumers = len({*agents}) + len({*tools}) + len({*pools})
    click.echo(
        f"{topology.shards} shards with {consumers} queues each for agents, tools and pools"
        f" at {redacted(settings.nats_url)}",
        file=sys.stderr,
    )


def _spec(given: str) -> AgentSpec:
    """Raise SpecError, SetupError."""
    if not given.startswith("{"):
        return read_agent(Path(given))
    try:
        return decode_spec(given)
    except msgspec.DecodeError as error:
        raise SpecError(f"--at-rest: not an agent's specification: {error}") from error
