"""The gateway's NATS user may do what schedules need, on a real server."""

import asyncio
from collections.abc import Iterator

import pytest

from cadre.adapters.nats.automations import NatsAlarms, NatsDefinitions
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.queues.delivery import NatsDelivery
from cadre.adapters.nats.queues.queue import Queue
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import ScheduleState, new_schedule
from cadre.protocol.topology import Subject
from harness.patience import patience
from integration.secured_world import Secured, T, secured


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as one:
        yield one


async def test_the_gateway_keeps_schedules_and_is_told_when_they_are_due(world: Secured) -> None:
    nc = await connect(world.settings("gateway"), "test")
    due = asyncio.Event()

    async def note(delivery: NatsDelivery) -> None:
        assert delivery.address.leaf == "daily"
        await delivery.ack()
        due.set()

    consumer, subject = T.schedules_consumer(), T.below(Subject.DUE)
    queue = Queue(nc, T.automation_stream, consumer, subject, note, limit=1)
    try:
        await queue.start()
        states, alarms = NatsDefinitions(nc, T, "schedule", ScheduleState), NatsAlarms(nc, T)
        state = new_schedule(ScheduleSpec(name="daily", agent="boss", task="x", every=60), 0.0)
        fence = await states.write("daily", state, 0)
        assert await states.read("daily") == (state, fence)
        assert await states.all() == [state]
        await alarms.set("daily", 0.0)
        async with asyncio.timeout(patience()):
            await due.wait()
        await alarms.set("daily", 4e9)
        await alarms.clear("daily")
        assert await states.remove("daily")
        assert await states.read("daily") == (None, 0)
    finally:
        await queue.drain(1.0)
        await nc.close()
