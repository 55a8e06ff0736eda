"""The journals of a tree, read by their own subjects, and in the order in which they were written."""

from collections.abc import AsyncIterator

import pytest

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.reading.journal_pages import MERGED_RUNS, journal_pages
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.protocol.topology import Topology
from cadre.settings import Settings


@pytest.fixture
async def shard(settings: Settings) -> AsyncIterator[tuple[NatsClient, Topology]]:
    nc = await connect(settings, "test")
    yield nc, await provision(nc, settings)
    await nc.close()


@pytest.mark.parametrize("runs", [1, 3, MERGED_RUNS + 1, 1100])
async def test_all_entries_come_in_order(shard: tuple[NatsClient, Topology], runs: int) -> None:
    nc, topology = shard
    written = []
    for number in range(max(40, runs)):
        # Some of the runs write much, some little, and others in between.
        run = f"t_{(number * number) % runs}" if number < 40 else f"t_{number}"
        written.append(await jetstream.append(nc, topology.journal("t", run), b"{}"))
        if number < 40:
            await jetstream.append(nc, topology.journal(f"beside{number}", "x"), b"{}")

    async def read(after: int, entries: int) -> list[int]:
        found: list[int] = []
        subject, stream = topology.journals_of_tree("t"), topology.stream_of("t")
        async for page in journal_pages(nc, stream, subject, after, written[-1], entries):
            assert 0 < len(page) <= max(entries, MERGED_RUNS)
            found += [held.seq for held in page]
        return found

    assert await read(0, 16) == written
    assert await read(written[10], 3 if runs < 1000 else 128) == written[11:]
    assert await read(written[-1], 16) == []
