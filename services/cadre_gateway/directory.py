"""Who is there: the registry's replicas grouped by agent and by tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cadre.messages import AgentCard, Presence, ToolCard


class Replica(msgspec.Struct, frozen=True):
    instance: str
    host: str
    pid: int
    health: str
    started_at: float


class LiveAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with at least one live replica; the card is that of the youngest."""

    name: str
    description: str
    kind: str
    labels: dict[str, str]
    version: str
    tools: list[str]
    team: list[str]
    missing: list[str]
    """Tools and team members that the agent names and no live service offers."""
    replicas: list[Replica]


class LiveTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with at least one live executor."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    read_only: bool
    idempotent: bool
    timeout: float | None
    approval: str
    """Whether a person must agree to a call, as the tool says; empty leaves it to the agents."""
    labels: dict[str, str]
    version: str
    replicas: list[Replica]


def live_agents(presences: Iterable[Presence]) -> dict[str, list[Presence]]:
    return _grouped((p.agent, p) for p in presences)


def agents(presences: list[Presence]) -> list[LiveAgent]:
    """Sorted by name."""
    live = live_agents(presences)
    offered = live.keys() | _grouped((p.tool, p) for p in presences).keys()
    found = []
    for _, replicas in sorted(live.items()):
        card = replicas[-1].agent
        if card is not None:
            # A selector (`key=value`) names nobody in particular.
            named = [*card.tools, *(member for member in card.team if "=" not in member)]
            missing = [one for one in named if one not in offered]
            found.append(LiveAgent(**_fields(card), missing=missing, replicas=_replicas(replicas)))
    return found


def tools(presences: list[Presence]) -> list[LiveTool]:
    """Sorted by name."""
    found = []
    for _, replicas in sorted(_grouped((p.tool, p) for p in presences).items()):
        card = replicas[-1].tool
        if card is not None:
            found.append(LiveTool(**_fields(card), replicas=_replicas(replicas)))
    return found


def _grouped(offers: Iterable[tuple[AgentCard | ToolCard | None, Presence]]) -> dict[str, list[Presence]]:
    groups: dict[str, list[Presence]] = {}
    for card, presence in offers:
        if card is not None:
            groups.setdefault(card.name, []).append(presence)
    for replicas in groups.values():
        replicas.sort(key=lambda presence: presence.started_at)
    return groups


def _fields(card: AgentCard | ToolCard) -> dict[str, Any]:
    return {name: getattr(card, name) for name in card.__struct_fields__}


def _replicas(presences: list[Presence]) -> list[Replica]:
    return [Replica(p.instance, p.host, p.pid, p.health, p.started_at) for p in presences]
