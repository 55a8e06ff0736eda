"""Keep rollouts up to date: open the queues of live revisions and close those of drained ones.

Every gateway does this, and the first one carries out what is due.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Set

from msgspec.structs import replace

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.rollouts import NatsRollouts, NatsSlots
from cadre.errors import CadreError, Fenced
from cadre.ports import Clock
from cadre.protocol.rollout import Rollout, Share
from cadre.service.revision import objects_of
from cadre_gateway.index.lists import known_open_runs_of
from cadre_gateway.index.run_index import RunIndex

log = logging.getLogger("cadre.gateway")

_DRAINING_SECONDS = 2.0
"""Seconds between two looks while a revision drains or a queue goes: the gateway is not notified when messages are
handled and runs end."""

_STEADY_SECONDS = 30.0
"""Seconds between two checks for lost queues."""

QUIET_SECONDS = 10.0
"""After a change everybody has heard of it: who passes a record on as things stood before does not ack it by then."""


class RolloutKeeper:
    """Opens the queues of revisions, removes those of drained ones, and recreates those that were lost."""

    def __init__(
        self, rollouts: NatsRollouts, slots: NatsSlots, registry: NatsRegistry, index: RunIndex, clock: Clock
    ) -> None:
        self._rollouts = rollouts
        self._slots = slots
        self._registry = registry
        self._index = index
        self._clock = clock
        self._over: dict[str, int] = {}
        """The versions of rollouts that are over, with nothing left of them."""

    async def look_after(self) -> None:
        """Work until cancelled, whenever a rollout was changed; send no requests while there are no rollouts."""
        while True:
            seen = self._registry.version
            is_draining = await self._settle_all()
            if self._registry.version != seen:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAINING_SECONDS if is_draining else _STEADY_SECONDS):
                    await self._registry.changed()

    async def _settle_all(self) -> bool:
        """Return whether there is work that no event announces."""
        is_draining = False
        for rollout in self._registry.rollouts():
            if self._over.get(rollout.agent) == rollout.version:
                continue
            try:
                is_draining |= await self.settle(rollout.agent)
            except CadreError as error:
                is_draining = True
                log.warning("the rollout of %s: %s", rollout.agent, error)
        return is_draining

    async def settle(self, agent: str) -> bool:
        """Do what is due for the agent's rollout; true when more is to be done soon. Raises CadreError."""
        stored = await self._rollouts.read(agent)
        rollout = stored.rollout
        waiting = await self._slots.waiting(agent)
        for share in rollout.shares:
            if len(waiting.get(share.slot, [])) < self._slots.places:
                await self._slots.make(agent, share.slot, anew=share.state == "opening")
        now = self._clock.now()
        counts = {slot: sum(many) for slot, many in waiting.items()}
        beside = objects_of(self._registry.presences(), agent)
        open_runs = await known_open_runs_of(self._index, agent)
        following = settled(rollout, open_runs, counts, now, beside)
        if following is not rollout:
            try:
                await self._rollouts.write(renewed(following, rollout, now), stored.fence)
            except Fenced:
                log.debug("the rollout of %s was changed by somebody else", agent)
            return True
        left = await self._tidy(rollout, waiting.keys(), now)
        return left or any(not share.weight or share.state != "open" for share in rollout.shares)

    async def _tidy(self, rollout: Rollout, slots: Set[int], now: float) -> bool:
        """Remove the queues of slots that have no revision any more; true while it is too early for that."""
        idle = slots - {share.slot for share in rollout.shares}
        if now - rollout.changed_at < QUIET_SECONDS:
            return bool(idle) or not rollout.shares
        for slot in idle:
            await self._slots.remove(rollout.agent, slot)
            log.info("the queue %d of revisions of %s is removed", slot, rollout.agent)
        if not rollout.shares:
            self._over[rollout.agent] = rollout.version
        return False


def renewed(following: Rollout, before: Rollout, now: float) -> Rollout:
    """Return the rollout as what follows on the one before."""
    return replace(following, version=before.version + 1, changed_at=now)


def settled(
    rollout: Rollout,
    open_runs: Mapping[str, int] | None,
    waiting: Mapping[int, int],
    now: float,
    beside: Mapping[str, str] | None = None,
) -> Rollout:
    """Return the rollout as it is to be by now, once the queues of all its shares are there; the same one when it is
    so.

    `open_runs` are those of each revision, None while they are not known; `waiting` the messages of each slot that wait
    or are in hand, `beside` what the objects are called that the live revisions are in.
    """
    homes = beside or {}
    is_quiet = now - rollout.changed_at >= QUIET_SECONDS
    shares: list[Share] = []
    for share in rollout.shares:
        share = replace(share, beside=homes.get(share.revision, share.beside))
        if share.state == "opening":
            shares.append(replace(share, state="open"))
            continue
        is_empty = is_quiet and not waiting.get(share.slot)
        if share.state == "closing" and is_empty:
            continue
        has_ended = open_runs is not None and not open_runs.get(share.revision)
        is_drained = is_empty and not share.weight and has_ended
        if share.state == "open" and is_drained and not _is_needed(rollout, share):
            share = replace(share, state="closing")
        shares.append(share)
    return rollout if shares == rollout.shares else replace(rollout, shares=shares)


def _is_needed(rollout: Rollout, share: Share) -> bool:
    """Return whether it is the last one, or goes on with the runs of another one."""
    others = [one for one in rollout.shares if one.revision != share.revision]
    return not any(one.weight for one in others) or any(one.adopted_by == share.revision for one in others)
