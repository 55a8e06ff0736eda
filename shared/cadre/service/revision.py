"""Compute the revision of an agent, a digest of what it was started from, compare its replicas by it, and open and
close the queues that a replica takes from, one per revision."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial

import msgspec

from cadre.adapters.nats.queues.queue import Handler, Queue, ShardQueues
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import SetupError
from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import AgentCard, Presence, ToolCard
from cadre.protocol.rollout import Rollout
from cadre.runtime.revision_queue import RevisionQueue
from cadre.service.platform import Platform
from cadre.spec.agent import AgentSpec

_HEX_DIGITS = 12


def revision_of(spec: AgentSpec, prompts: Prompts) -> str:
    """Return the digest of the spec and of the texts of its prompts, wherever their file lies.

    Tools count by their names: their schemas come from the services that offer them, are journaled with each run's
    toolset, and have a separate digest (`schemas_of`).
    """
    fields = msgspec.json.encode(msgspec.structs.replace(spec, prompts=None), order="deterministic")
    digest = hashlib.sha256(hashlib.sha256(fields).digest() + hashlib.sha256(prompts.encoded).digest())
    return digest.hexdigest()[:_HEX_DIGITS]


def schemas_of(cards: Mapping[str, ToolCard], names: Iterable[str]) -> str:
    """Digest of what the tools of these names say of themselves to a model and to its agent; empty where none is there.

    Their order does not count.
    """
    there = [cards[name].decisive for name in sorted({*names}) if name in cards]
    if not there:
        return ""
    return hashlib.sha256(msgspec.json.encode(there, order="deterministic")).hexdigest()[:_HEX_DIGITS]


def blob_ref(data: bytes) -> str:
    """Return the reference that the bytes have once they are stored."""
    return f"blob:{hashlib.sha256(data).hexdigest()}"


def differing_replicas(card: AgentCard, revision: str, presences: Iterable[Presence]) -> list[Presence]:
    """Return the replicas of this agent in this version with another revision; those of earlier versions of Cadre have
    none."""
    return [
        presence
        for presence in presences
        if presence.agent is not None
        and (presence.agent.name, presence.agent.version) == (card.name, card.version)
        and presence.revision not in ("", revision)
    ]


def objects_of(presences: Iterable[Presence], agent: str) -> dict[str, str]:
    """Return what the objects of each live revision of the agent are called; empty for the first's, which go before
    others."""
    found: dict[str, str] = {}
    for one in presences:
        if one.agent is not None and one.agent.name == agent and one.revision:
            found[one.revision] = min(one.beside, found.get(one.revision, one.beside))
    return found


def live_revisions(presences: Iterable[Presence], agent: str) -> dict[str, int]:
    """Return the number of live replicas of each revision of the agent, the one first that has the oldest replica."""
    by_age = sorted(presences, key=lambda one: one.started_at)
    return Counter(one.revision for one in by_age if one.agent is not None and one.agent.name == agent and one.revision)


log = logging.getLogger("cadre.agent")

_AGAIN_SECONDS = 1.0

_LEAVE_SECONDS = 5.0
"""Seconds for messages in work of a queue that is left; the rest goes to its new owner."""


class RevisionSlots:
    """The queues of one replica; none while its agent has no rollout."""

    def __init__(self, platform: Platform, agent: str, revision: str, handler: Handler, limiter: FairLimiter) -> None:
        self._platform = platform
        self._registry = platform.registry
        self._agent, self._revision = agent, revision
        self._handler, self._limiter = handler, limiter
        self._open: dict[int, ShardQueues[Queue]] = {}
        self._following: asyncio.Task[None] | None = None
        self._live: tuple[int, frozenset[str]] = (-1, frozenset())
        self.record_queue = RevisionQueue(revision, self._rollout, self._live_revisions)

    @property
    def queues(self) -> list[Queue]:
        """Return all that are open now."""
        return [queue for queues in self._open.values() for queue in queues.queues]

    def start(self) -> None:
        """Open the queues that the rollout gives to this revision, and follows its changes from now on."""
        self._following = asyncio.create_task(self._follow(), name=f"rollout of {self._agent}")

    async def drain(self, grace: float) -> None:
        """Finish or hand back the messages in hand within `grace` seconds."""
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(*(queues.drain(grace) for queues in self._open.values()))

    def _rollout(self) -> Rollout | None:
        return self._registry.rollout(self._agent)

    def _live_revisions(self) -> Collection[str]:
        if self._live[0] != self._registry.version:
            found = live_revisions(self._registry.presences(), self._agent)
            self._live = self._registry.version, frozenset(found)
        return self._live[1]

    async def _follow(self) -> None:
        known: Rollout | None = None
        while True:
            if (rollout := self._rollout()) is known:
                await self._registry.changed()
                continue
            try:
                await self._take(rollout)
                known = rollout
            except SetupError as error:
                # A gateway makes them again, where this service may not.
                log.warning("the queues of revision %s: %s", self._revision, error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _take(self, rollout: Rollout | None) -> None:
        wanted = rollout.slots_of(self._revision) if rollout is not None else set()
        for slot in self._open.keys() - wanted:
            await self._leave(slot)
        for slot in sorted(wanted - self._open.keys()):
            await self._begin(slot)
        if rollout is not None and rollout.share_of(self._revision) is None:
            log.warning(
                "%s: revision %s has no part in the rollout and gets no runs: `cadre rollout %s --to %s --weight …`",
                *(self._agent, self._revision, self._agent, self._revision),
            )

    async def _begin(self, slot: int) -> None:
        platform, topology = self._platform, self._platform.topology
        consumer = topology.agent_consumer(self._agent, slot)
        filter_of = partial(topology.inbox_filter, agent=self._agent, slot=slot)
        self._open[slot] = queues = ShardQueues(
            platform.nc, platform.shards, consumer, filter_of, self._handler, self._limiter, Queue
        )
        try:
            await queues.start()
        except SetupError:
            await self._leave(slot)
            raise

    async def _leave(self, slot: int) -> None:
        await self._open.pop(slot).drain(_LEAVE_SECONDS)
