"""The registry of replicas: each renews its own key, and every listener hears the bucket and ages what it heard.

Heartbeats are puts to the bucket's subjects, so a plain subscription sees them all; the stored values serve those who
come later. There is no consumer, and nothing to resume after a reconnect. A key stays for days behind its replica: what
a deployment has is known also while nothing serves it (`registry_view`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import msgspec
import nats.errors
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.registry_view import RegistryView, ServiceKey
from cadre.adapters.nats.server_clock import ServerClock
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.engine.toolset import card_of
from cadre.errors import CadreError, UnreadableMessage
from cadre.protocol.cards import AT_REST, RETIRED, Presence
from cadre.protocol.rollout import Rollout, rollout_key
from cadre.protocol.topology import Topology
from cadre.spec.agent import AgentSpec

log = logging.getLogger("cadre.registry")

HEARTBEAT_SECONDS = 3.0
"""Seconds between two signs of life of a replica."""

GONE_AFTER_SECONDS = 10.0
"""Seconds without one after which it counts as away."""

AWAY_DAYS = 7.0
"""Days for which a replica's key stays behind it, unless the deployment says otherwise."""

_SWEEP_SECONDS = 60.0
"""Seconds after which a key is removed that a live replica stands in for."""

_BEATS_PER_MEASUREMENT = 4
"""Signs of life between two measurements of the server's clock."""

_PAGE = 256

_STORED_AT = "Nats-Time-Stamp"


async def remove_key(nc: Client, bucket: str, key: str) -> None:
    """Remove a key of the registry; others see it at once. Raises as `jetstream.append`."""
    headers = {"KV-Operation": "DEL", jetstream.TTL: "60s"}
    await jetstream.append(nc, f"$KV.{bucket}.{key}", b"", headers=headers)


def seconds_of(away_days: float) -> float:
    """Return for how long a key stays behind its replica."""
    return max(GONE_AFTER_SECONDS, away_days * 86_400)


class NatsRegistry:
    """Announces this process's presences and keeps a view of everybody's."""

    def __init__(
        self,
        nc: Client,
        topology: Topology,
        clock: ServerClock | None = None,
        away_days: float = AWAY_DAYS,
    ) -> None:
        """Measure `clock` regularly and announce its skew with each presence. Keys of this process stay for `away_days`
        after it ends."""
        self.shards: Callable[[], int] = lambda: topology.shards
        """Returns the number of shards in which this process takes part."""
        self._clock = clock
        self._stays = seconds_of(away_days)
        self._beats = 0
        self._nc = nc
        self._bucket = topology.registry_bucket
        self._topology = topology
        self._view = RegistryView()
        self._own: dict[str, Presence] = {}
        self._parts: dict[str, dict[str, Presence]] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._rollout_keys = rollout_key(self._bucket, "")
        self._kept_doubtful = False
        """True if data that heartbeats do not repeat may have changed while the connection was lost."""
        self._clock_doubtful = False
        self._subscription: Subscription | None = None
        self._beat: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._reconnects = 0
        self._rollout_changes = 0

    @property
    def version(self) -> int:
        """Go up whenever somebody comes, go or changes its card, or a rollout changes."""
        return self._view.version + self._rollout_changes

    async def start(self) -> None:
        """Begin to listen; returns once everybody stored in the bucket is known, however long that takes."""
        self._subscription = await self._nc.subscribe(f"$KV.{self._bucket}.>", cb=self._on_put)
        await retry(self._read, pauses=EVERY_SECOND, log=log)
        self._beat = asyncio.create_task(self._heartbeat(), name="registry")

    async def _read(self) -> None:
        """Learn what is stored."""
        subjects = f"$KV.{self._bucket}.>"
        before, found = self._view.kept(), set[str]()
        after = 0
        query = {"batch": _PAGE, "next_by_subj": subjects}
        with self._noting():
            while page := await jetstream.batch(self._nc, f"KV_{self._bucket}", {"seq": after + 1, **query}):
                for message in page:
                    if message.data:
                        found.add(message.subject)
                        stored = (message.headers or {}).get(_STORED_AT, "")
                        self._find(message.subject, message.data, stored)
                after = page[-1].seq
            for key in before - found:
                self._view.drop(key)

    def presences(self) -> list[Presence]:
        """Return every live replica, its own first announced included."""
        return self._view.live()

    def reachable(self) -> list[Presence]:
        """Return every live replica; of what has none the card at rest, else the replicas that are away. What is sent
        to them waits in their queues."""
        return self._view.reachable()

    def absences(self) -> dict[ServiceKey, float | None]:
        """Return since when each known service is away, as `RegistryView.absences`."""
        return self._view.absences()

    def retired(self) -> dict[ServiceKey, float]:
        """Return when each service was retired, as `RegistryView.retired`."""
        return self._view.retired()

    def rollout(self, agent: str) -> Rollout | None:
        """By which weights the agent's revisions share its new runs; None when there is no rollout."""
        found = self._rollouts.get(agent)
        return found if found is not None and found.shares else None

    def rollouts(self) -> list[Rollout]:
        """Return all that is known of rollouts, also of those that are over."""
        return list(self._rollouts.values())

    async def changed(self) -> None:
        """Return when somebody has come, gone or changed, or a rollout has, since the call."""
        self._changed.clear()
        await self._changed.wait()

    async def announce(self, presences: list[Presence], part: str = "") -> None:
        """Keep these presences alive from now on, in place of the former ones of this part of the process, of which
        those are removed for good that are not among them."""
        own: dict[str, Presence] = {}
        for presence in presences:
            kind, name = _offered(presence)
            own[self._topology.presence_key(kind, name, presence.instance)] = presence
        former = self._parts.get(part, {})
        self._parts[part] = own
        self._own = {key: presence for one in self._parts.values() for key, presence in one.items()}
        await retry(self._put_all, pauses=EVERY_SECOND, log=log)
        for key in former.keys() - self._own.keys():
            await retry(partial(remove_key, self._nc, self._bucket, key), pauses=EVERY_SECOND, log=log)

    async def withdraw(self) -> None:
        """Say of its presences that they are away from now on: others see it at once."""
        own, self._own, self._parts = self._own, {}, {}
        now = self._now()
        for key, presence in own.items():
            await self._put(key, replace(presence, away_since=now))

    async def stop(self) -> None:
        """End the heartbeats and the listening."""
        if self._beat is not None:
            self._beat.cancel()
        if self._subscription is not None and self._nc.is_connected:
            await self._subscription.unsubscribe()

    def _now(self) -> float:
        """Unix seconds, by the server's clock where that is known."""
        return self._clock.now() if self._clock is not None else time.time()

    async def _put_all(self) -> None:
        """Put all at once: others hear of each, also when the first of them cannot be stored."""
        ended = await asyncio.gather(*(self._put(*own) for own in self._own.items()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _put(self, key: str, presence: Presence) -> None:
        skew = self._clock.skew if self._clock is not None else 0.0
        await jetstream.append(
            self._nc,
            f"$KV.{self._bucket}.{key}",
            encode(replace(presence, skew=skew, shards=self.shards())),
            headers={jetstream.TTL: f"{self._stays:.0f}s"},
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
                self._leave_silent()
                await self._sweep()
            else:
                # Silence says nothing then: everybody is given their time again.
                self._view.refresh(heard)
            if self._nc.is_connected:
                await self._look_after_clock()
                await self._look_after_kept()

    async def _takes_signs_of_life(self) -> bool:
        """Give its own and return whether the bucket takes any: one that others miss says nothing otherwise."""
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
        """Return whether a sign of life of somebody has not come when it was due."""
        return not self._view.heard_since(time.monotonic() - 1.5 * HEARTBEAT_SECONDS)

    async def _look_after_clock(self) -> None:
        self._beats += 1
        if self._clock is None or (self._beats % _BEATS_PER_MEASUREMENT and not self._clock_doubtful):
            return
        try:
            await self._clock.measure(self._nc, self._topology.stream(0))
            self._clock_doubtful = False
        except (nats.errors.Error, CadreError) as error:
            log.warning("the server's time could not be read again: %s", error)

    async def _look_after_kept(self) -> None:
        """Read again what may have been missed, except about live replicas: their heartbeats repeat it."""
        if not self._kept_doubtful:
            return
        try:
            await self._read()
            self._kept_doubtful = False
        except (nats.errors.Error, CadreError) as error:
            log.warning("rollouts, and what is away or at rest, may be out of date: %s", error)

    async def _sweep(self) -> None:
        """Remove the keys of replicas that this process stands in for."""
        for key in self._view.superseded(self._subjects(), self._now() - _SWEEP_SECONDS):
            try:
                await remove_key(self._nc, self._bucket, key.removeprefix(f"$KV.{self._bucket}."))
            except (nats.errors.Error, CadreError) as error:
                log.warning("the key of a replica that is gone stays for now: %s", error)
                return

    def _subjects(self) -> list[str]:
        return [f"$KV.{self._bucket}.{key}" for key in self._own]

    def _was_cut_off(self) -> bool:
        """Return whether the connection is lost, or was lost and found since the last call."""
        before, self._reconnects = self._reconnects, self._nc.stats["reconnects"]
        return not self._nc.is_connected or self._reconnects != before

    def _leave_silent(self) -> None:
        now = time.monotonic()
        with self._noting():
            for key in self._view.leave_silent(now - GONE_AFTER_SECONDS, self._now() - now):
                log.info("%s is away", key.removeprefix(f"$KV.{self._bucket}."))
            # The server removes their keys without a message to those who only listen.
            self._view.forget(self._now() - self._stays)

    async def _on_put(self, message: Msg) -> None:
        headers = message.headers or {}
        with self._noting():
            if headers.get("KV-Operation"):
                self._view.drop(message.subject)
            elif message.data:
                self._find(message.subject, message.data)

    def _learn_rollout(self, key: str, data: bytes) -> None:
        try:
            rollout: Rollout = decode(data, Rollout)
        except UnreadableMessage as error:
            log.warning("rollout %s ignored: %s", key, error)
            return
        before = self._rollouts.get(rollout.agent)
        if before is None or before.version < rollout.version:
            self._rollouts[rollout.agent] = rollout
            self._rollout_changes += 1

    def _find(self, key: str, data: bytes, stored: str = "") -> None:
        """Take a value of the bucket; `stored` is when it was put, of one that was read there."""
        if key.startswith(self._rollout_keys):
            self._learn_rollout(key, data)
            return
        try:
            presence: Presence = decode(data, Presence)
        except UnreadableMessage as error:
            log.warning("registry key %s ignored: %s", key, error)
            return
        put = datetime.fromisoformat(stored).timestamp() if stored else self._now()
        silent_since = put if self._now() - put > GONE_AFTER_SECONDS else 0.0
        self._view.find(key, presence, time.monotonic(), silent_since=silent_since)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Wake those who wait for a change, if there was one."""
        before = self.version
        yield
        if self.version != before:
            self._changed.set()


def _offered(presence: Presence) -> tuple[str, str]:
    """Return the kind and name of what the replica offers."""
    if presence.agent is not None:
        return "agent", presence.agent.name
    if presence.tool is not None:
        return "tool", presence.tool.name
    if presence.sandbox is not None:
        return "sandbox", presence.sandbox.pool
    raise ValueError("a presence needs the card of an agent, of a tool or of a sandbox")


async def keep_card(nc: Client, topology: Topology, agent: AgentSpec) -> None:
    """Put the card in place of a former one. Raises as `jetstream.append`."""
    # A new blob that nothing names stays for an hour.
    ref = await NatsBlobs(nc, topology).put(msgspec.json.encode(agent))
    kept = Presence(
        instance=AT_REST,
        host="",
        pid=0,
        started_at=time.time(),
        spec=ref,
        agent=card_of(agent),
    )
    subject = f"$KV.{topology.registry_bucket}.{_key(topology, agent.name)}"
    await jetstream.append(nc, subject, encode(kept))


async def take_card_away(nc: Client, topology: Topology, agent: str) -> bool:
    """Return whether there was one. Raises as `jetstream.append`."""
    bucket, key = topology.registry_bucket, _key(topology, agent)
    found = await jetstream.last(nc, f"KV_{bucket}", f"$KV.{bucket}.{key}")
    if found is None or not found.data:
        return False
    await remove_key(nc, bucket, key)
    return True


async def retire(nc: Client, topology: Topology, service: ServiceKey, now: float, days: float = AWAY_DAYS) -> None:
    """Take a service out of the deployment: its card at rest goes, and it is unknown once the replicas that started
    until now (Unix seconds) are gone. The marker stays for `days`, as long as their keys do. Raises as
    `jetstream.append`."""
    if service.kind == "agent":
        await take_card_away(nc, topology, service.name)
    marker = Presence(instance=RETIRED, host="", pid=0, started_at=now)
    subject = _marker(topology, service)
    await jetstream.append(nc, subject, encode(marker), headers={jetstream.TTL: f"{seconds_of(days):.0f}s"})


async def is_retired(nc: Client, topology: Topology, service: ServiceKey) -> bool:
    """Return whether the stream's leader has the service's marker. Raises BusUnavailable."""
    found = await jetstream.last(nc, f"KV_{topology.registry_bucket}", _marker(topology, service))
    return found is not None and bool(found.data)


async def take_back(nc: Client, topology: Topology, service: ServiceKey) -> None:
    """Take the marker of a retired service away: it is about to be served. Raises as `jetstream.append`."""
    if await is_retired(nc, topology, service):
        key = topology.presence_key(service.kind, service.name, RETIRED)
        await remove_key(nc, topology.registry_bucket, key)


def _marker(topology: Topology, service: ServiceKey) -> str:
    key = topology.presence_key(service.kind, service.name, RETIRED)
    return f"$KV.{topology.registry_bucket}.{key}"


def _key(topology: Topology, agent: str) -> str:
    return topology.presence_key("agent", agent, AT_REST)
