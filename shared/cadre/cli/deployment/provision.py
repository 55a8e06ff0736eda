"""`cadre provision`: what a team needs on the bus, created before its services start."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from cadre.adapters.local_stack import find_nats
from cadre.adapters.tool_entries import load_entry
from cadre.deploy.team_file import read_team
from cadre.errors import SpecError
from cadre.protocol.nats_addresses import redacted
from cadre.protocol.nats_users import Role
from cadre.settings import read_settings
from cadre.spec.agent import AgentSpec, decode_spec
from cadre.spec.agent_file import read_agent
from cadre.spec.names import check_name


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
def command(
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
    replica serves it: what waits in its queues tells an autoscaler to start one. `cadre retire` takes the card away,
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
    """Raises SpecError, SetupError."""
    if not given.startswith("{"):
        return read_agent(Path(given))
    try:
        return decode_spec(given)
    except msgspec.DecodeError as error:
        raise SpecError(f"--at-rest: not an agent's specification: {error}") from error
