"""Schedules, triggers and notices in JetStream: each a separate value, changed by compare-and-set, in one stream."""

from typing import Generic, TypeVar

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.automation.notice import NoticeDelivery
from cadre.delivery.codec import decode, encode
from cadre.errors import UnreadableMessage
from cadre.protocol.topology import Subject, Topology

_DUE_TTL = "1h"
"""The time after which a message expires. Each gateway also looks at all schedules and finds what is due."""

GIVEN_UP = "Cadre-Given-Up"
"""Header of the message of a tick that is given up: why."""

D = TypeVar("D", bound=msgspec.Struct)


class GivenUpTick(msgspec.Struct, frozen=True, tag_field="type", tag="tick"):
    """The message that a tick is kept as when it is given up."""

    schedule: str
    tick: float
    """Unix seconds."""


class NatsDefinitions(Generic[D]):
    """The definitions of one kind, by name: structs of the type `form`. Every method raises RetryableError."""

    def __init__(self, nc: Client, topology: Topology, kind: str, form: type[D]) -> None:
        self._nc = nc
        self._topology = topology
        self._kind = kind
        self._form = form
        self._stream = topology.automation_stream

    async def read(self, name: str) -> tuple[D | None, int]:
        """Return the definition and its fence, never stale; None and 0 when it does not exist. Raises
        UnreadableMessage."""
        return await self._value(name).read()

    async def write(self, name: str, value: D, fence: int) -> int:
        """Replace the definition at `fence` (0: it does not exist); return the new fence. Raises Fenced."""
        return await self._value(name).write(value, fence)

    async def remove(self, name: str) -> bool:
        """Remove the definition; return whether there was one. Readers of the earlier value can no longer replace
        it."""
        subject = self._topology.definition(self._kind, name)
        return await jetstream.purge(self._nc, self._stream, subject) > 0

    async def all(self) -> list[D | UnreadableMessage]:
        """Return all definitions, by name; in the place of one that this version cannot read, why."""
        found: dict[str, D | UnreadableMessage] = {}
        async for held in jetstream.messages(self._nc, self._stream, self._topology.definitions(self._kind)):
            try:
                found[held.subject] = decode(held.data, self._form)
            except UnreadableMessage as error:
                found[held.subject] = error
        return [found[subject] for subject in sorted(found)]

    async def has_any(self) -> bool:
        """Return whether there is any definition."""
        async for _ in jetstream.messages(self._nc, self._stream, self._topology.definitions(self._kind)):
            return True
        return False

    def _value(self, name: str) -> FencedValue[D]:
        subject = self._topology.definition(self._kind, name)
        return FencedValue(self._nc, self._stream, subject, self._form, {jetstream.ROLLUP: "sub"})


class NatsDeliveries:
    """Webhooks on their way. Every method raises RetryableError."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def send(self, delivery: NoticeDelivery) -> None:
        """Have the webhook sent; the same one again within two minutes is stored once."""
        headers = {jetstream.MESSAGE_ID: f"{delivery.notice}/{delivery.id}"}
        await jetstream.append(self._nc, self._subject(Subject.DELIVERY, delivery), encode(delivery), headers=headers)

    async def retry(self, delivery: NoticeDelivery, due: float) -> None:
        """Have the webhook sent once more at `due`, in Unix seconds."""
        again = msgspec.structs.replace(delivery, attempt=delivery.attempt + 1)
        subject, target = self._subject(Subject.RETRY, delivery), self._subject(Subject.DELIVERY, delivery)
        await jetstream.schedule(self._nc, subject, encode(again), target, due)

    def _subject(self, template: str, delivery: NoticeDelivery) -> str:
        return self._topology.subject(template, notice=delivery.notice, id=delivery.id)


class NatsAlarms:
    """Wakes the handlers of schedules: one message schedule of the server for each, replaced by the next."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def set(self, schedule: str, due: float) -> None:
        """Have the schedule's name delivered at `due`, in Unix seconds. Raises RetryableError."""
        subject, target = self._topology.tick(schedule), self._topology.due(schedule)
        await jetstream.schedule(self._nc, subject, schedule.encode(), target, due, _DUE_TTL)

    async def wake(self, schedule: str, tick: float) -> None:
        """Have the schedule's name delivered at once; for one tick only so often, whichever gateways ask for it. Raises
        RetryableError."""
        headers = {jetstream.MESSAGE_ID: f"wake/{schedule}/{tick:.3f}", jetstream.TTL: _DUE_TTL}
        await jetstream.append(self._nc, self._topology.due(schedule), schedule.encode(), headers=headers)

    async def give_up(self, schedule: str, tick: float, why: str) -> None:
        """Make a dead letter of a tick: the message is given up when it is delivered. Raises RetryableError."""
        headers = {
            jetstream.MESSAGE_ID: f"given-up/{schedule}/{tick:.3f}",
            GIVEN_UP: " ".join(why.split())[:300],
        }
        body = encode(GivenUpTick(schedule=schedule, tick=tick))
        await jetstream.append(self._nc, self._topology.due(schedule), body, headers=headers)

    async def clear(self, schedule: str) -> None:
        """Take the alarm of a schedule that is gone. Raises RetryableError."""
        await jetstream.purge(self._nc, self._topology.automation_stream, self._topology.tick(schedule))
