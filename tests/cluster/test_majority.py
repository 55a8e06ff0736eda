"""Two of three servers are down: nothing is acknowledged, no one gives up, and all goes on when one is back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.reading.reader import OrderedReader
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.adapters.nats.streams.provision import check, provision
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import BusUnavailable, RetryableError
from cadre.protocol.messages import Task
from cadre.service.platform import open_platform
from cadre.settings import Settings
from harness.nats_cluster import SIZE, NatsCluster

SOON = 40.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path)
    yield cluster
    cluster.stop()


async def test_without_a_majority_everything_waits(cluster: NatsCluster) -> None:
    settings = Settings(nats_url=cluster.url, replicas=SIZE, shards=1)
    first, second, third = cluster.servers.values()
    first.start()
    # One server of three: there is no leader that could create anything.
    opening = asyncio.create_task(open_platform("first", settings))
    observer = await connect(settings, "observer")
    with pytest.raises(BusUnavailable):
        await provision(observer, settings)
    assert not opening.done()
    second.start()
    third.start()
    platform = await asyncio.wait_for(opening, SOON)
    nc, topology = platform.nc, platform.topology
    stream, subject = topology.stream(0), topology.inbox("boss", "test", "t1", "t1")
    assert await check(nc, settings) == []
    await asyncio.to_thread(cluster.wait_healthy)

    arrived, go_on = asyncio.Queue[bytes](), asyncio.Event()

    async def handle(delivery: NatsDelivery) -> None:
        await arrived.put(delivery.data)
        await go_on.wait()
        await delivery.ack()

    queue = Queue(nc, stream, "agent-boss", topology.inbox_filter(0, "boss"), handle, limit=4)
    await queue.start()
    fence = await jetstream.append(nc, subject, b"in work", expect=0)
    assert await asyncio.wait_for(arrived.get(), SOON) == b"in work"

    # The server that all of them are connected to is one of the two.
    first.kill()
    second.kill()
    late = Queue(nc, stream, "agent-late", topology.inbox_filter(0, "late"), handle, limit=4)
    starting = asyncio.create_task(late.start())
    await _signs_of_life(observer, 6)
    with pytest.raises(RetryableError):
        await jetstream.append(nc, subject, b"lost or late", expect=fence)
    assert not starting.done()

    first.start()
    second.start()
    await asyncio.wait_for(starting, SOON)
    go_on.set()
    await retry(lambda: jetstream.append(nc, topology.inbox("late", "test", "t2", "t2"), b"new"), pauses=EVERY_SECOND)
    while await asyncio.wait_for(arrived.get(), SOON) != b"new":
        pass
    await queue.drain(1.0)
    await late.drain(1.0)
    await platform.registry.stop()
    await nc.close()
    await observer.close()


async def _signs_of_life(observer: NatsClient, count: int) -> None:
    """So many from anyone who has a record in work, none more than 3 s after the one before."""
    subscription = await observer.subscribe("$JS.ACK.>")
    for _ in range(count):
        message = await subscription.next_msg(timeout=3.0)
        assert message.data == b"+WPI"
    await subscription.unsubscribe()


async def test_a_task_is_found_as_soon_as_it_is_accepted(cluster: NatsCluster) -> None:
    """Whichever server one is connected to, and whichever replica lags behind."""
    cluster.start()
    settings = Settings(nats_url=cluster.url, replicas=SIZE, shards=1)
    clients = [
        await connect(msgspec.structs.replace(settings, nats_url=server.url), "test")
        for server in cluster.servers.values()
    ]
    topology = await retry(lambda: provision(clients[0], settings), pauses=EVERY_SECOND)
    blobs = [NatsBlobs(nc, topology) for nc in clients]
    buses = [NatsBus(nc, topology, blob) for nc, blob in zip(clients, blobs, strict=True)]
    histories = [History(nc, topology, blob) for nc, blob in zip(clients, blobs, strict=True)]

    async def one_after_another(worker: int) -> list[str]:
        missed = []
        for number in range(100):
            run = f"{worker}x{number}"
            task = Task(id=f"{run}:task", tree=run, run=run, at=0.0, agent="boss", task="hello")
            await buses[number % SIZE].send(task, "test")
            if await histories[number % SIZE].task(run, run) != task:
                missed.append(run)
        return missed

    missed = await asyncio.gather(*(one_after_another(worker) for worker in range(8)))
    assert [run for runs in missed for run in runs] == []
    for nc in clients:
        await nc.close()


async def test_a_reader_is_not_set_back_by_a_leader_that_lags(cluster: NatsCluster) -> None:
    """A replica served what the new leader has yet to apply: it is neither read again nor left out."""
    cluster.start()
    settings = Settings(nats_url=cluster.url, replicas=SIZE, shards=1)
    nc = await connect(settings, "test")
    topology = await retry(lambda: provision(nc, settings), pauses=EVERY_SECOND)
    subject = topology.journal("t1", "t1")
    fence = 0
    for number in range(2):
        fence = await jetstream.append(nc, subject, b"%d" % number, expect=fence)
    read: asyncio.Queue[StoredMessage] = asyncio.Queue()
    reader = OrderedReader(nc, topology.stream(0), topology.journals_of_shard(0), fence + 2, read.put)
    reading = asyncio.create_task(reader.run())
    for number in range(2, 6):
        fence = await jetstream.append(nc, subject, b"%d" % number, expect=fence)
    got = [await asyncio.wait_for(read.get(), SOON) for _ in range(2)]
    assert [held.data for held in got] == [b"4", b"5"]
    reading.cancel()
    await nc.close()
