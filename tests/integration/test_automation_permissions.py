"""The gateway's NATS user may do what schedules and notices need, on a real server."""

import asyncio
from collections.abc import Iterator

import pytest

from cadre.adapters.nats.automations import NatsAlarms, NatsDefinitions, NatsDeliveries
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.queues.queue import LateQueue, NatsDelivery, Queue, ShardQueues
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.automation.notice import NoticeDelivery
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import ScheduleState, new_schedule
from cadre.delivery.fair_limiter import FairLimiter
from cadre.protocol.topology import Subject
from harness.patience import patience
from integration.secured_world import JOURNAL, Secured, T, secured


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


async def test_the_gateway_follows_the_journals_for_notices_and_sends_deliveries(world: Secured) -> None:
    nc, operator = (
        await connect(world.settings("gateway"), "test"),
        await connect(world.settings("operator"), "op"),
    )
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def note(delivery: NatsDelivery) -> None:
        await delivery.ack()
        seen.put_nowait(delivery.subject)

    journals = ShardQueues(
        nc, ShardWatch(nc, T), T.notices_consumer(), T.journals_of_shard, note, FairLimiter(1), LateQueue
    )
    await journals.start()
    consumer, subject = T.deliveries_consumer(), T.below(Subject.DELIVERY)
    queue = Queue(nc, T.automation_stream, consumer, subject, note, limit=1)
    try:
        await queue.start()
        await jetstream.append(operator, JOURNAL, b"{}")
        delivery = NoticeDelivery(notice="desk", id="t1:finished", type="run.finished", run="t1", at=0.0, data={})
        deliveries = NatsDeliveries(nc, T)
        async with asyncio.timeout(patience()):
            assert await seen.get() == JOURNAL
            await deliveries.send(delivery)
            assert await seen.get() == "cadre.automation.delivery.desk.t1:finished"
            await deliveries.retry(delivery, 0.0)
            assert await seen.get() == "cadre.automation.delivery.desk.t1:finished"
    finally:
        for one in (journals, queue):
            await one.drain(1.0)
        await journals.queues[0].remove()
        await nc.close()
        await operator.close()
