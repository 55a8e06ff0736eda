"""The agents, tools and sandboxes of a deployment: the registry's replicas in groups, with what is away or at rest,
and what live agents expect of each other."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cadre.api.directory import LiveAgent, LiveSandbox, LiveTool, Replica
from cadre.engine.contract import contract_problems
from cadre.engine.toolset import offered_cards
from cadre.errors import BlobMissing, BusUnavailable, SpecError
from cadre.ports import Blobs
from cadre.protocol.cards import TIERS, AgentCard, Presence, SandboxCard, ToolCard, presence_order
from cadre.recent import Recent
from cadre.service.revision import schemas_of
from cadre.spec.agent import AgentSpec, decode_spec
from cadre.spec.agent_file import leaned_on
from cadre.spec.contract import TeamReach


def live_agents(presences: Iterable[Presence]) -> dict[str, list[Presence]]:
    """Return the replicas of each agent by its name, the former ones if it is away; the card of the last one counts."""
    return _grouped((p.agent, p) for p in presences)


def card_of(presences: Iterable[Presence], agent: str) -> AgentCard | None:
    """Return the card of a live agent; None if no live agent has this name."""
    replicas = live_agents(presences).get(agent)
    return replicas[-1].agent if replicas else None


def agents(presences: list[Presence], specs: Mapping[str, AgentSpec]) -> list[LiveAgent]:
    """Return the live agents, sorted by name, with what does not hold of their contracts and what they lean on, as far
    as their `specs` are known."""
    live, tools = live_agents(presences), offered_cards(presences)
    offered, absent = live.keys() | tools.keys(), _away(presences)
    reach = TeamReach(tools=tools, agents=specs, is_whole=False)
    found = []
    for _, replicas in sorted(live.items()):
        card = replicas[-1].agent
        if card is not None:
            # A selector (`key=value`) names no single agent.
            named = [*card.tools, *(member for member in card.team if "=" not in member)]
            missing = [one for one in named if one not in offered]
            found.append(
                LiveAgent(
                    **_fields(card),
                    missing=missing,
                    away=[one for one in named if one in absent],
                    away_since=_away_since(replicas),
                    schemas=schemas_of(tools, card.tools),
                    **_told_by(specs.get(card.name), reach),
                    differing=_differing(replicas),
                    replicas=_replicas(replicas),
                )
            )
    return found


def tools(presences: list[Presence]) -> list[LiveTool]:
    """Return the live tools as agents are offered them, sorted by name."""
    replicas, cards = _grouped((p.tool, p) for p in presences), offered_cards(presences)
    return [
        LiveTool(**_fields(card), away_since=_away_since(replicas[name]), replicas=_replicas(replicas[name]))
        for name, card in sorted(cards.items())
    ]


def sandboxes(presences: list[Presence]) -> list[LiveSandbox]:
    """Return the live sandboxes, sorted by pool."""
    pools: dict[str, list[tuple[SandboxCard, Presence]]] = {}
    for presence in sorted(presences, key=presence_order):
        if presence.sandbox is not None:
            pools.setdefault(presence.sandbox.pool, []).append((presence.sandbox, presence))
    return [
        LiveSandbox(
            pool=pool,
            tier=max((card.tier for card, _ in live), key=_rank),
            python=", ".join(sorted({card.python for card, _ in live})),
            sessions=sum(card.sessions for card, presence in live if presence.is_live),
            version=live[-1][0].version,
            away_since=_away_since([presence for _, presence in live]),
            replicas=_replicas([presence for _, presence in live]),
        )
        for pool, live in sorted(pools.items())
    ]


def _told_by(spec: AgentSpec | None, reach: TeamReach) -> dict[str, Any]:
    if spec is None:
        return {}
    needed = leaned_on(spec)
    problems = contract_problems(spec, reach)
    return {"problems": problems, "pools": sorted(set(needed.pools)), "memory": needed.memory}


def _rank(tier: str) -> int:
    """Return the place of a tier by how little it is trusted; an unknown one is trusted least."""
    return TIERS.index(tier) if tier in TIERS else len(TIERS)


def _grouped(offers: Iterable[tuple[AgentCard | ToolCard | None, Presence]]) -> dict[str, list[Presence]]:
    groups: dict[str, list[Presence]] = {}
    for card, presence in offers:
        if card is not None:
            groups.setdefault(card.name, []).append(presence)
    for replicas in groups.values():
        replicas.sort(key=presence_order)
    return groups


def _fields(card: AgentCard | ToolCard) -> dict[str, Any]:
    return {name: getattr(card, name) for name in card.__struct_fields__}


def _replicas(presences: list[Presence]) -> list[Replica]:
    return [
        Replica(p.instance, p.host, p.pid, p.health, p.started_at, p.revision, p.skew, p.spec, p.prompts)
        for p in presences
        if p.is_live
    ]


def _away_since(presences: list[Presence]) -> float | None:
    """Return when the last of them stopped; None where one is live or at rest."""
    return None if any(not p.away_since for p in presences) else max(p.away_since for p in presences)


def _away(presences: Iterable[Presence]) -> set[str]:
    """Return the names of the agents and tools that are away."""
    cards = [one.agent or one.tool for one in presences if one.away_since]
    return {card.name for card in cards if card is not None}


def _differing(replicas: list[Presence]) -> list[str]:
    """Return the revisions of replicas that say they are one version and are not; those of older services are not
    known."""
    revisions: dict[str, set[str]] = {}
    for presence in replicas:
        if presence.agent is not None and presence.revision and presence.is_live:
            revisions.setdefault(presence.agent.version, set()).add(presence.revision)
    return sorted({one for same in revisions.values() if len(same) > 1 for one in same})


log = logging.getLogger("cadre.gateway")

_MOST_SPECS = 256


class LiveContracts:
    """Holds the specifications of live agents against cards; each is read once."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known = Recent[str, AgentSpec](_MOST_SPECS)

    async def specs(self, presences: Iterable[Presence]) -> dict[str, AgentSpec]:
        """Return the specifications of live agents by name, as far as they can be read: of several replicas that of
        the one whose card counts."""
        live = sorted(presences, key=presence_order)
        refs = {presence.agent.name: presence.spec for presence in live if presence.agent is not None}
        read = {name: await self.spec(ref) for name, ref in refs.items() if ref}
        return {name: spec for name, spec in read.items() if spec is not None}

    async def of_agent(self, presences: Iterable[Presence], agent: str) -> AgentSpec | None:
        """Return the specification of a live agent; None where it cannot be read."""
        return (await self.specs(one for one in presences if one.agent and one.agent.name == agent)).get(agent)

    async def spec(self, ref: str) -> AgentSpec | None:
        """Return the specification; None where it is not there yet, or is another version's."""
        if ref not in self._known:
            try:
                self._known[ref] = decode_spec(await self._blobs.get(ref))
            except (BlobMissing, BusUnavailable, SpecError, msgspec.DecodeError) as error:
                log.debug("specification %s cannot be read: %s", ref, error)
                return None
        return self._known[ref]
