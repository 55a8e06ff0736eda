"""Messages that only a newer Cadre reads: handed back with growing pauses, and given up with a clear reason."""

from __future__ import annotations

import pytest

from cadre.delivery.newer_schema import HANDED_BACK, leave_to_newer
from cadre.errors import NewerSchema
from cadre.ports import Delivery
from cadre.protocol.topology import Topology


class Delivered:
    """ports.Delivery that notes what becomes of it."""

    subject = "cadre.in.0.worker.gateway.t.t"
    address = Topology.address(subject)
    data = b"{}"
    seq = 7
    retried = False

    def __init__(self, deliveries: int) -> None:
        self.deliveries = deliveries
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
    await leave_to_newer(delivery, NewerSchema(9, 8))
    [how] = delivered.settled
    return how


async def test_the_pauses_grow_to_about_a_minute_in_all() -> None:
    pauses = [await settle(deliveries) for deliveries in range(1, HANDED_BACK + 1)]
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert 60 <= sum(pause for pause in pauses if isinstance(pause, float)) < 90


@pytest.mark.parametrize("deliveries", [HANDED_BACK + 1, HANDED_BACK + 100])
async def test_in_the_end_it_is_a_dead_letter_that_says_what_to_do(deliveries: int) -> None:
    assert await settle(deliveries) == (
        "written by a newer Cadre (schema 9, this one reads up to 8): upgrade this service, then `cadre dead retry`"
    )
