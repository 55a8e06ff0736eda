"""The registry of live replicas: each keeps a key with a TTL alive, everyone who cares listens to the bucket.

Heartbeats are puts to the bucket's subjects, so a plain subscription sees them all; the stored values serve those who
come later. There is no consumer, and nothing to resume after a reconnect.
"""

import asyncio
import logging
import time
from functools import partial

import nats.errors
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.server_clock import ServerClock
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import CadreError, UnreadableMessage
from cadre.protocol.cards import AT_REST, Presence
from cadre.protocol.rollout import Rollout, rollout_key
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.registry")

HEARTBEAT_SECONDS = 3.0
"""Seconds between two signs of life of a replica."""

GONE_AFTER_SECONDS = 10.0
"""Seconds without one after which it counts as gone."""

_BEATS_PER_MEASUREMENT = 4
"""Signs of life between two measurements of the server's clock."""

_PAGE = 256


async def remove_key(nc: Client, bucket: str, key: str) -> None:
    """Removes a key of the registry; others see it at once. Raises as `jetstream.append`."""
    headers = {"KV-Operation": "DEL", jetstream.TTL: "60s"}
    await jetstream.append(nc, f"$KV.{bucket}.{key}", b"", headers=headers)


class NatsRegistry:
    """Announces this process's presences and keeps a live view of everybody's."""

    def __init__(self, nc: Client, topology: Topology, clock: ServerClock | None = None) -> None:
        """`clock` is looked after: measured regularly, and its skew told with each presence."""
        self._clock = clock
        self._beats = 0
        self._nc = nc
        self._bucket = topology.registry_bucket
        self._topology = topology
        self._known: dict[str, tuple[Presence, float]] = {}
        self._at_rest: dict[str, Presence] = {}
        self._own: dict[str, Presence] = {}
        self._parts: dict[str, dict[str, Presence]] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._rollout_keys = rollout_key(self._bucket, "")
        self._kept_doubtful = False
        """Rollouts, or cards at rest, may have changed while the connection was lost."""
        self._clock_doubtful = False
        self._subscription: Subscription | None = None
        self._beat: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._reconnects = 0
        self.version = 0
        """Goes up whenever somebody comes, goes or changes its card."""

    async def start(self) -> None:
        """Begins to listen; returns once everybody stored in the bucket is known, however long that takes."""
        self._subscription = await self._nc.subscribe(f"$KV.{self._bucket}.>", cb=self._on_put)
        await retry(partial(self._read, f"$KV.{self._bucket}.>"), pauses=EVERY_SECOND, log=log)
        self._beat = asyncio.create_task(self._heartbeat(), name="registry")

    async def _read(self, subjects: str) -> set[str]:
        """Learns what is stored; returns the keys."""
        found: set[str] = set()
        after = 0
        query = {"batch": _PAGE, "next_by_subj": subjects}
        while page := await jetstream.batch(self._nc, f"KV_{self._bucket}", {"seq": after + 1, **query}):
            for message in page:
                if message.data:
                    self._learn(message.subject, message.data)
                    found.add(message.subject)
            after = page[-1].seq
        return found

    def presences(self) -> list[Presence]:
        """Returns every live replica, its own first announced included."""
        return [presence for presence, _ in self._known.values()]

    def reachable(self) -> list[Presence]:
        """Returns every live replica, and the card at rest of each agent that has none: what it is sent starts one."""
        live = {one.agent.name for one, _ in self._known.values() if one.agent is not None}
        resting = [one for one in self._at_rest.values() if one.agent and one.agent.name not in live]
        return [*self.presences(), *resting]

    def rollout(self, agent: str) -> Rollout | None:
        """By which weights the agent's revisions share its new runs; None when there is no rollout."""
        found = self._rollouts.get(agent)
        return found if found is not None and found.shares else None

    def rollouts(self) -> list[Rollout]:
        """All that is known of rollouts, also of those that are over."""
        return list(self._rollouts.values())

    async def changed(self) -> None:
        """Returns when somebody has come, gone or changed, or a rollout has, since the call."""
        self._changed.clear()
        await self._changed.wait()

    async def announce(self, presences: list[Presence], part: str = "") -> None:
        """Keeps these presences alive from now on, in place of the former ones of this part of the process."""
        own: dict[str, Presence] = {}
        for presence in presences:
            kind, name = _offered(presence)
            own[self._topology.presence_key(kind, name, presence.instance)] = presence
        self._parts[part] = own
        self._own = {key: presence for one in self._parts.values() for key, presence in one.items()}
        await retry(self._put_all, pauses=EVERY_SECOND, log=log)

    async def withdraw(self) -> None:
        """Removes its presences: others see it at once."""
        own, self._own, self._parts = self._own, {}, {}
        for key in own:
            await remove_key(self._nc, self._bucket, key)

    async def stop(self) -> None:
        """Ends the heartbeats and the listening."""
        if self._beat is not None:
            self._beat.cancel()
        if self._subscription is not None and self._nc.is_connected:
            await self._subscription.unsubscribe()

    async def _put_all(self) -> None:
        """Puts all at once: others hear of each, also when the first of them cannot be stored."""
        ended = await asyncio.gather(*(self._put(*own) for own in self._own.items()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _put(self, key: str, presence: Presence) -> None:
        skew = self._clock.skew if self._clock is not None else 0.0
        await jetstream.append(
            self._nc,
            f"$KV.{self._bucket}.{key}",
            encode(replace(presence, skew=skew)),
            headers={jetstream.TTL: f"{GONE_AFTER_SECONDS:.0f}s"},
        )

    async def _heartbeat(self) -> None:
        began = heard = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS - min(time.monotonic() - began, HEARTBEAT_SECONDS))
            began = time.monotonic()
            could_hear = await self._takes_signs_of_life()
            if self._was_cut_off():
                self._clock_doubtful = self._kept_doubtful = True
                could_hear = False
            stood_still, heard = time.monotonic() - heard > 2 * HEARTBEAT_SECONDS, time.monotonic()
            if could_hear and not stood_still:
                self._forget_the_silent()
            else:
                # Silence says nothing then: everybody is given their time anew.
                self._known = {key: (presence, heard) for key, (presence, _) in self._known.items()}
            if self._nc.is_connected:
                await self._look_after_clock()
                await self._look_after_kept()

    async def _takes_signs_of_life(self) -> bool:
        """Gives its own and returns whether the bucket takes any: one that others miss says nothing otherwise."""
        try:
            await self._put_all()
            if not self._own and self._heard_late():
                # Its leader alone answers.
                await jetstream.ask(self._nc, "asking for the registry", f"STREAM.INFO.KV_{self._bucket}")
        except (nats.errors.Error, CadreError) as error:
            log.warning("the registry takes no signs of life: %s", error)
            return False
        return True

    def _heard_late(self) -> bool:
        """Whether a sign of life of somebody has not come when it was due."""
        due = time.monotonic() - 1.5 * HEARTBEAT_SECONDS
        return any(heard < due for _, heard in self._known.values())

    async def _look_after_clock(self) -> None:
        self._beats += 1
        if self._clock is None or (self._beats % _BEATS_PER_MEASUREMENT and not self._clock_doubtful):
            return
        try:
            await self._clock.measure(self._nc, self._topology.stream(0))
            self._clock_doubtful = False
        except (nats.errors.Error, CadreError) as error:
            log.warning("the server's time is not known anew: %s", error)

    async def _look_after_kept(self) -> None:
        """Heartbeats repeat what was missed of replicas; of rollouts and cards at rest nobody does."""
        if not self._kept_doubtful:
            return
        try:
            await self._read(rollout_key(self._bucket))
            kept = await self._read(f"$KV.{self._bucket}.{self._topology.presence_key('*', '*', AT_REST)}")
            for key in self._at_rest.keys() - kept:
                self._drop(key)
            self._kept_doubtful = False
        except (nats.errors.Error, CadreError) as error:
            log.warning("rollouts and cards at rest are not known anew: %s", error)

    def _was_cut_off(self) -> bool:
        """Whether the connection is lost, or was lost and found since the last call."""
        before, self._reconnects = self._reconnects, self._nc.stats["reconnects"]
        return not self._nc.is_connected or self._reconnects != before

    def _forget_the_silent(self) -> None:
        deadline = time.monotonic() - GONE_AFTER_SECONDS
        for key, (presence, heard) in list(self._known.items()):
            if heard < deadline:
                log.info("%s of %s is gone", presence.instance, key.rpartition(".")[0])
                del self._known[key]
                self._note()

    async def _on_put(self, message: Msg) -> None:
        if (message.headers or {}).get("KV-Operation"):
            self._drop(message.subject)
        elif message.data:
            self._learn(message.subject, message.data)

    def _drop(self, key: str) -> None:
        if self._known.pop(key, None) or self._at_rest.pop(key, None):
            self._note()

    def _learn_rollout(self, key: str, data: bytes) -> None:
        try:
            rollout: Rollout = decode(data, Rollout)
        except UnreadableMessage as error:
            log.warning("rollout %s ignored: %s", key, error)
            return
        before = self._rollouts.get(rollout.agent)
        if before is None or before.version < rollout.version:
            self._rollouts[rollout.agent] = rollout
            self._note()

    def _learn(self, key: str, data: bytes) -> None:
        if key.startswith(self._rollout_keys):
            self._learn_rollout(key, data)
            return
        try:
            presence: Presence = decode(data, Presence)
        except UnreadableMessage as error:
            log.warning("registry key %s ignored: %s", key, error)
            return
        if presence.is_at_rest:
            if self._at_rest.get(key) != presence:
                self._at_rest[key] = presence
                self._note()
            return
        before = self._known.get(key)
        self._known[key] = (presence, time.monotonic())
        if before is None or before[0] != presence:
            self._note()

    def _note(self) -> None:
        self.version += 1
        self._changed.set()


def _offered(presence: Presence) -> tuple[str, str]:
    """Returns the kind and name of what the replica offers."""
    if presence.agent is not None:
        return "agent", presence.agent.name
    if presence.tool is not None:
        return "tool", presence.tool.name
    if presence.sandbox is not None:
        return "sandbox", presence.sandbox.pool
    raise ValueError("a presence needs the card of an agent, of a tool or of a sandbox")
