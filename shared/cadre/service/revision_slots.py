"""Open and close the queues that a replica takes from, one per revision, as the agent's rollout says."""

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from cadre.adapters.nats.queues.queue import Handler, Queue
from cadre.adapters.nats.queues.shard_queues import ShardQueues
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import SetupError
from cadre.protocol.rollout import Rollout
from cadre.runtime.revision_queue import RevisionQueue
from cadre.service.platform import Platform
from cadre.service.revision import live_revisions

log = logging.getLogger("cadre.agent")

_AGAIN_SECONDS = 1.0

_LEAVE_SECONDS = 5.0
"""Seconds for messages in work of a queue that is left; the rest goes to its new owner."""


class RevisionSlots:
    """The queues of one replica; none while its agent has no rollout."""

    def __init__(
        self, platform: Platform, agent: str, revision: str, handler: Handler, limiter: FairLimiter
    ) -> None:
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
        """All that are open now."""
        return [queue for queues in self._open.values() for queue in queues.queues]

    def start(self) -> None:
        """Opens the queues that the rollout gives to this revision, and follows its changes from now on."""
        self._following = asyncio.create_task(self._follow(), name=f"rollout of {self._agent}")

    async def drain(self, grace: float) -> None:
        """Finishes or hands back the messages in hand within `grace` seconds."""
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
