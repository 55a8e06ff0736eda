"""Reading a stream up to what it holds at some moment, also when a part of that is removed before it was read."""

import asyncio

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.reading.reader import OrderedReader
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.adapters.nats.streams.provision import provision
from cadre.settings import Settings
from harness.patience import patience
from integration.gateway_world import new_run


@pytest.mark.parametrize("is_removed", [False, True])
async def test_reads_on_to_what_is_there(settings: Settings, is_removed: bool) -> None:
    nc = await connect(settings, "test")
    reading: asyncio.Task[None] | None = None
    try:
        topology = await provision(nc, settings)
        tree = new_run()
        stream, subject = topology.stream_of(tree), topology.file(tree, "a")
        read: list[int] = []

        async def handle(held: StoredMessage) -> None:
            read.append(held.seq)

        reader = OrderedReader(nc, stream, topology.files_of_shard(topology.shard(tree)), 0, handle)
        await reader.read_on()
        first = await jetstream.append(nc, subject, b"{}")
        last = await jetstream.append(nc, topology.file(tree, "b"), b"{}")
        waiting = [asyncio.create_task(reader.read_on()) for _ in range(2)]
        for _ in range(4):  # one connection is answered in turn: by then they know how far to read
            await jetstream.last(nc, stream, subject)
        assert not any(one.done() for one in waiting)
        if is_removed:
            await jetstream.purge(nc, stream, topology.file(tree, "b"))
        reading = asyncio.create_task(reader.run())
        async with asyncio.timeout(patience()):
            await asyncio.gather(*waiting)
        assert read == ([first] if is_removed else [first, last])
    finally:
        if reading is not None:
            reading.cancel()
        await nc.close()
