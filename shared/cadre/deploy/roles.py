"""The NATS users that a team's services need."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from cadre.adapters.tool_entries import load_entry
from cadre.deploy.k8s.components import Component
from cadre.deploy.team_file import TeamSpec
from cadre.engine.offer import callable_tools
from cadre.protocol.nats_users import Role, team_roles
from cadre.spec.agent_file import read_agent


def roles_of(team: TeamSpec, *, memory: bool | None = None) -> list[Role]:
    """The roles of all services of the team; `memory` overrides whether the memory service is one.

    Raises SetupError when a module of tools cannot be loaded, or an agent's file cannot be read."""
    tools = [
        (name, tuple(tool.name for tool in load_entry(entry)))
        for entry, name in zip(team.tools, tool_service_names(team.tools), strict=True)
    ]
    calls = {name: tuple(callable_tools(read_agent(file))) for name, file in team.agents.items()}
    memory = team.needs_memory if memory is None else memory
    return team_roles(team.agents, tools, team.pools, memory=memory, calls=calls)


def roles_of_components(team: TeamSpec, components: Iterable[Component]) -> list[Role]:
    """The roles of these services of a cluster, and the operator's. Raises SetupError."""
    roles = [Role(kind="operator")]
    for one in components:
        if one.role == "agent":
            calls = tuple(callable_tools(read_agent(team.agents[one.name])))
            roles.append(Role(kind="agent", name=one.name, calls=calls))
        elif one.role == "tools":
            roles.append(Role(kind="tools", name=one.name, tools=tuple(one.provides[1::2])))
        elif one.role != "provision":
            roles.append(Role(kind=one.role, name=one.name))
    return roles


def tool_service_names(entries: Iterable[str]) -> list[str]:
    """Names of the services of these tool modules, in their order and each once."""
    taken: list[str] = []
    for entry in entries:
        source, _, function = entry.partition(":")
        stem = Path(source).stem if "/" in source else source.rpartition(".")[2]
        wanted = re.sub(r"[^a-zA-Z0-9_-]", "-", stem + (function and f"-{function}"))
        taken.append(unused_name(wanted, taken))
    return taken


def unused_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is taken."""
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 1000))) if n not in taken)
