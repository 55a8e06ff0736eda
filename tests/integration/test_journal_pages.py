"""The journals of a tree, read by their own subjects, and in the order in which they were written."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.reading.history import MERGED_RUNS, journal_pages
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.adapters.nats.streams.provision import provision
from cadre.errors import BusUnavailable
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


@pytest.mark.parametrize("runs", [1, MERGED_RUNS + 1, 1100])
async def test_a_replica_that_lags_is_not_taken_for_the_end(
    shard: tuple[NatsClient, Topology], runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc, topology = shard
    written = [
        await jetstream.append(nc, topology.journal("t", f"t_{number % runs}"), b"{}") for number in range(max(8, runs))
    ]
    monkeypatch.setattr("cadre.adapters.nats.reading.history._REPLICA_SECONDS", 0.2)
    real, behind = jetstream.batch, [True]

    async def lagging(*about: Any) -> list[StoredMessage]:
        return [one for one in await real(*about) if not behind[0] or one.seq < written[-3]]

    monkeypatch.setattr(jetstream, "batch", lagging)
    subject, stream = topology.journals_of_tree("t"), topology.stream_of("t")

    async def read(found: list[int]) -> None:
        async for page in journal_pages(nc, stream, subject, 0, written[-1], 128):
            found += [held.seq for held in page]

    found: list[int] = []
    with pytest.raises(BusUnavailable):
        await read(found)
    assert found == written[: len(found)], "what was read so far is in order, and is gone on behind"
    behind[0] = False
    again: list[int] = []
    await read(again)
    assert again == written


async def test_an_entry_that_was_removed_is_not_waited_for(shard: tuple[NatsClient, Topology]) -> None:
    nc, topology = shard
    subject, stream = topology.journals_of_tree("t"), topology.stream_of("t")
    first = await jetstream.append(nc, topology.journal("t", "t"), b"{}")
    last = await jetstream.append(nc, topology.journal("t", "t"), b"{}")
    await jetstream.delete(nc, stream, last)
    pages = [page async for page in journal_pages(nc, stream, subject, 0, last, 16)]
    assert [held.seq for page in pages for held in page] == [first]
