"""Messages that only a newer Cadre reads: handed back with growing pauses, and given up with a clear reason."""

import pytest

from cadre.delivery.quarantine import Quarantine
from cadre.delivery.worker import MAX_REDELIVERIES, Job, Worker, defer_to_newer
from cadre.errors import NewerSchema, TerminalError
from cadre.ports import Blobs, Delivery
from cadre.protocol.topology import Topology
from harness.memory_ports import MemoryBlobs
from unit.test_quarantine import MemoryQuarantine, StillClock


class Delivered:
    """ports.Delivery that notes what becomes of it."""

    seq = origin = 7
    retried = False

    def __init__(self, deliveries: int, data: bytes = b"{}", subject: str = "cadre.in.0.worker.gateway.t.t") -> None:
        self.deliveries, self.data, self.subject = deliveries, data, subject
        self.address = Topology.address(subject)
        self.settled: list[object] = []

    async def ack(self) -> None:
        self.settled.append("ack")

    async def nak(self, delay: float = 0.0) -> None:
        self.settled.append(delay)

    async def term(self, reason: str) -> None:
        self.settled.append(reason)


async def settle(deliveries: int) -> object:
    delivered = Delivered(deliveries)
    delivery: Delivery = delivered
    await defer_to_newer(delivery, NewerSchema(9, 8))
    [how] = delivered.settled
    return how


async def test_the_pauses_grow_to_about_a_minute_in_all() -> None:
    pauses = [await settle(deliveries) for deliveries in range(1, MAX_REDELIVERIES + 1)]
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert 60 <= sum(pause for pause in pauses if isinstance(pause, float)) < 90


@pytest.mark.parametrize("deliveries", [MAX_REDELIVERIES + 1, MAX_REDELIVERIES + 100])
async def test_in_the_end_it_is_a_dead_letter_that_says_what_to_do(deliveries: int) -> None:
    assert "`cadre dead retry`" in str(await settle(deliveries))


# --- what a worker does with them


class Served:
    """A worker whose service and refusal end as asked."""

    def __init__(self, outcome: bool | Exception = True, refusal: Exception | None = None) -> None:
        self._outcome, self._refusal = outcome, refusal
        self.asked: list[str] = []
        self._worker = Worker[bytes](
            self._read,
            self._refuse,
            MemoryBlobs(),
            Quarantine(MemoryQuarantine(), StillClock()),
            StillClock(),
        )

    async def handle(self, deliveries: int = 1, data: bytes = b"{}") -> list[object]:
        delivered = Delivered(deliveries, data)
        await self._worker.handle(delivered, self._serve)
        return delivered.settled

    async def _read(self, data: bytes, blobs: Blobs) -> bytes:
        self.asked.append("read")
        return data

    async def _serve(self, job: Job[bytes]) -> bool:
        assert await job.message() == await job.message() == job.delivery.data
        self.asked.append("serve")
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def _refuse(self, job: Job[bytes], error: TerminalError) -> None:
        self.asked.append(str(error))
        if self._refusal is not None:
            raise self._refusal


async def test_a_message_is_read_once_and_acked_when_it_is_served() -> None:
    served = Served()
    assert await served.handle() == ["ack"]
    assert served.asked == ["read", "serve"]


async def test_a_message_that_another_worker_has_is_not_acked() -> None:
    assert await Served(outcome=False).handle() == []


async def test_a_message_that_cannot_be_served_is_refused_and_a_dead_letter() -> None:
    served = Served(outcome=TerminalError("no such thing"))
    assert await served.handle() == ["no such thing"]
    assert served.asked == ["read", "serve", "no such thing"]


async def test_a_newer_message_is_handed_back_and_nobody_is_refused() -> None:
    served = Served(outcome=NewerSchema(9, 8))
    assert await served.handle(data=b'{"v": 999}') == [1.0]
    assert served.asked == ["read", "serve"]


async def test_a_newer_message_that_comes_again_is_not_even_read() -> None:
    served = Served()
    assert await served.handle(deliveries=2, data=b'{"v": 999}') == [2.0]
    assert served.asked == []


async def test_a_refusal_that_only_a_newer_replica_can_make_is_left_to_it() -> None:
    served = Served(outcome=TerminalError("no such thing"), refusal=NewerSchema(9, 8))
    assert await served.handle() == [1.0]
