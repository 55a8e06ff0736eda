"""`cadre provision`: what a team needs on the bus, created before its services start."""

import asyncio
import sys
from pathlib import Path

import click

from cadre.local.local_stack import find_nats
from cadre.local.team.team_file import read_team
from cadre.local.team.tool_entries import load_entry
from cadre.protocol.nats_addresses import redacted
from cadre.settings import read_settings


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
def command(
    *,
    team: Path | None,
    agents: tuple[str, ...],
    tools: tuple[str, ...],
    pools: tuple[str, ...],
    services: tuple[str, ...],
) -> None:
    """Create the streams and buckets, and the queues of TEAM's services and of those named.

    Services do the same when they start. It matters where they start because something waits: an autoscaler that
    begins at none; and where services have NATS users of their own, which may not make them: then this is run with
    the operator's key. What is there already stays as it is.
    """
    from cadre.adapters.nats.queues.consumers import provision_team  # the bus's weight is not the help's

    memory, tracer = "memory" in services, "tracer" in services
    if team is not None:
        found = read_team(team)
        agents += tuple(found.agents)
        tools += tuple(tool.name for entry in found.tools for tool in load_entry(entry))
        pools += tuple(found.pools)
        memory, tracer = memory or found.needs_memory, True
    find_nats()
    settings = read_settings()
    topology = asyncio.run(
        provision_team(
            settings,
            agents={*agents},
            tools=sorted({*tools}),
            pools={*pools},
            memory=memory,
            tracer=tracer,
        )
    )
    consumers = len({*agents}) + len({*tools}) + len({*pools})
    click.echo(
        f"{topology.shards} shards with {consumers} queues each for agents, tools and pools"
        f" at {redacted(settings.nats_url)}",
        file=sys.stderr,
    )
