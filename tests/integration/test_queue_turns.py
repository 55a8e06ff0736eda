"""Queues that share a limiter: trees take turns, an idle shard leaves its places to a busy one, a drain gives back."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.fair_limiter import FairLimiter
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.patience import patience, until


class Bench:
    """Two shards' queues of one agent with one limiter; a message is at work until it is let go."""

    def __init__(self, nc: NatsClient, topology: Topology) -> None:
        self.nc, self.topology = nc, topology
        self.begun: asyncio.Queue[NatsDelivery] = asyncio.Queue()
        self.ends: dict[int, asyncio.Event] = {}
        self.queues: list[Queue] = []

    def tree(self, shard: int) -> str:
        """A new tree that lives in the shard."""
        return next(tree for tree in iter(lambda: uuid4().hex, "") if self.topology.shard(tree) == shard)

    async def publish(self, tree: str, count: int) -> None:
        for n in range(count):
            subject = self.topology.inbox("boss", "gateway", tree, f"{tree}_1_{n}")
            await jetstream.append(self.nc, subject, b"x")

    async def start(self, limiter: FairLimiter) -> list[Queue]:
        queues = [
            Queue(
                self.nc,
                self.topology.stream(shard),
                "agent-boss",
                self.topology.inbox_filter(shard, "boss"),
                self._handle,
                limit=limiter,
            )
            for shard in range(self.topology.shards)
        ]
        for queue in queues:
            await queue.start()
        self.queues += queues
        return queues

    async def _handle(self, delivery: NatsDelivery) -> None:
        self.ends[delivery.seq] = asyncio.Event()
        self.begun.put_nowait(delivery)
        await self.ends[delivery.seq].wait()
        await delivery.ack()

    async def next(self) -> NatsDelivery:
        return await asyncio.wait_for(self.begun.get(), patience())

    async def in_hand(self, count: int) -> None:
        async def there() -> bool:
            return sum(queue.in_flight for queue in self.queues) == count

        await until(there)


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    nc = await connect(settings, "test")
    one = Bench(nc, await provision(nc, settings))
    yield one
    for queue in one.queues:
        await queue.drain(0)
    await nc.close()


async def test_the_next_turn_is_another_trees(bench: Bench) -> None:
    big, small = bench.tree(0), bench.tree(0)
    await bench.publish(big, 7)
    await bench.publish(small, 1)
    await bench.start(FairLimiter(4))
    first = [await bench.next() for _ in range(4)]
    assert {bench.topology.parse(delivery.subject)[0] for delivery in first} == {big}
    await bench.in_hand(8)
    assert bench.begun.empty()
    bench.ends[first[0].seq].set()
    second = await bench.next()
    bench.ends[first[1].seq].set()
    third = await bench.next()
    turns = [bench.topology.parse(delivery.subject)[0] for delivery in (second, third)]
    assert turns == [big, small], "the big tree had waited longer, then it is the other's turn"


async def test_an_idle_shard_leaves_its_places_to_a_busy_one(bench: Bench) -> None:
    await bench.publish(bench.tree(1), 20)
    await bench.start(FairLimiter(6, queues=2))
    done = 0
    at_work = [await bench.next() for _ in range(6)]
    while at_work:
        assert bench.begun.empty(), "never more than six"
        bench.ends[at_work.pop(0).seq].set()
        done += 1
        if done <= 20 - 6:
            at_work.append(await bench.next())
    assert done == 20


async def test_what_waits_for_a_turn_is_given_back_at_once(bench: Bench) -> None:
    """A drain waits for what is at work, and holds back nothing that another replica could begin."""
    tree = bench.tree(0)
    await bench.publish(tree, 4)
    first = await bench.start(FairLimiter(2))
    at_work = [await bench.next(), await bench.next()]
    await bench.in_hand(4)
    draining = asyncio.gather(*(queue.drain(patience()) for queue in first))
    await bench.start(FairLimiter(2))
    others = {(await bench.next()).seq, (await bench.next()).seq}
    assert others.isdisjoint(delivery.seq for delivery in at_work)
    assert not draining.done()
    for delivery in at_work:
        bench.ends[delivery.seq].set()
    await asyncio.wait_for(draining, patience())
    bench.queues = [queue for queue in bench.queues if queue not in first]
    for seq in others:
        bench.ends[seq].set()
    await bench.in_hand(0)


async def test_a_stream_that_is_gone_is_asked_for_ever_more_rarely(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.start(FairLimiter(4))
    for shard in range(bench.topology.shards):
        await jetstream.api(bench.nc, f"STREAM.DELETE.{bench.topology.stream(shard)}")

    def pauses() -> list[str]:
        said = [one.getMessage() for one in caplog.records if "not found; trying again" in one.getMessage()]
        return [text.rpartition(" in ")[2] for text in said if bench.topology.stream(0) in text]

    async def twice() -> bool:
        return len(pauses()) > 2

    await until(twice)
    assert pauses()[:3] == ["1 s", "2 s", "4 s"]
