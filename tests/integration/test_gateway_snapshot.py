"""The saved copy of the list of runs: when it is written, when it is trusted."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.objects.snapshots import NatsSnapshots
from cadre.adapters.nats.reading.tail import identities
from cadre.adapters.nats.streams.provision import provision
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.protocol.fates import Erased
from cadre.protocol.messages import (
    Task,
)
from cadre.protocol.topology import Topology, task_id
from cadre.settings import Settings
from cadre.spec.agent import AgentSpec
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.retention.tree_records import TreeRecords
from cadre_gateway.snapshot import IndexSnapshots


class Store(NamedTuple):
    images: NatsSnapshots
    topology: Topology
    streams: list[str]

    def snapshots(self, every_seconds: float = 3600.0) -> IndexSnapshots:
        return IndexSnapshots(self.images, self.topology, self.streams, every_seconds=every_seconds)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    nc = await connect(settings, "test")
    topology = await provision(nc, settings)
    yield Store(NatsSnapshots(nc, topology), topology, await identities(nc, topology))
    await nc.close()


def filled(runs: int) -> RunIndex:
    index = RunIndex()
    for number in range(runs):
        run = f"r{number}"
        task = Task(id=task_id(run), tree=run, run=run, at=1.0, agent="boss", task="Do it.")
        accepted = RunAccepted(task=task, spec=AgentSpec(name="boss", description="Leads."))
        entry = Entry(tree=run, run=run, agent="boss", n=1, cause="c", at=float(number), events=[accepted])
        index.apply(number + 1, entry)
    return index


async def test_what_was_saved_is_loaded(store: Store) -> None:
    index = filled(3000)
    await store.snapshots().save(index, TreeRecords(), [2000, 1000])
    loaded, _, positions = await store.snapshots().load()
    assert positions == [2000, 1000]
    assert msgspec.json.encode(loaded.trees()) == msgspec.json.encode(index.trees())


async def test_a_copy_that_is_absent_or_of_other_streams_is_not_used(store: Store) -> None:
    nothing = await store.snapshots().load()
    assert (len(nothing.runs), len(nothing.trees), nothing.positions) == (0, 0, [0, 0])
    await store.snapshots().save(filled(1), TreeRecords(), [1, 0])
    recreated = store._replace(streams=[*store.streams[:1], "2001-01-01T00:00:00Z"])
    index, _, positions = await recreated.snapshots().load()
    assert (len(index), positions) == (0, [0, 0])


async def test_the_ledger_is_saved_with_the_list(store: Store) -> None:
    trees = TreeRecords()
    trees.add_unreadable(5, "a", ["blob:" + "a" * 64])
    trees.erase(7, Erased(id="b:erased", tree="b", run="b", at=1.0), 9.0)
    await store.snapshots().save(filled(1), trees, [7, 0])
    loaded = (await store.snapshots().load()).trees
    assert msgspec.json.encode(loaded.to_saved()) == msgspec.json.encode(trees.to_saved())


async def test_a_copy_from_before_what_is_on_record_is_not_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was erased meanwhile would stay in the list."""
    await store.snapshots().save(filled(3), TreeRecords(), [3, 0])
    assert len((await store.snapshots().load()).runs) == 3
    later = time.time() + 6.5 * 24 * 3600
    monkeypatch.setattr("cadre_gateway.snapshot.time.time", lambda: later)
    assert len((await store.snapshots().load()).runs) == 0


async def test_one_entry_is_due_after_a_while_and_a_thousand_are_at_once(store: Store) -> None:
    soon = store.snapshots(every_seconds=0.1)
    waiting = asyncio.create_task(soon.wait_until_due())
    done, _ = await asyncio.wait({waiting}, timeout=2)
    assert not done, "nothing has changed"
    soon.note_change()
    await asyncio.wait_for(waiting, 60)
    await soon.save(filled(1), TreeRecords(), [1, 0])
    assert not soon.changed

    late = store.snapshots()
    waiting = asyncio.create_task(late.wait_until_due())
    for _ in range(999):
        late.note_change()
    done, _ = await asyncio.wait({waiting}, timeout=2)
    assert not done, "too few, too early"
    late.note_change()
    await asyncio.wait_for(waiting, 60)
