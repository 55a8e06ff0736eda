"""Worlds of gateways that share an index: what streams hold, gateways that read it at their own pace, and what the
index must have, by one reader that takes all of it in order."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cadre.adapters.nats.reading.tail import Read, reader_names
from cadre.errors import RunIndexUnavailable
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre.protocol.messages import Erased
from cadre.protocol.topology import call_id
from cadre_gateway.index.database.port import Database, SqlQuery, Statement
from cadre_gateway.index.run_index import RunIndex, apply_erasure, apply_import, apply_read, load
from unit.inline_index import InlineDatabase, new_index
from unit.journal_entries import accepted, called, entry

STREAMS = ("s0", "s1")
READERS = [name for _, name in reader_names(len(STREAMS))]
TREES = ("t0", "t1", "t2", "t3")
IGNORED = ev.RecordIgnored(kind="ToolResult", code="not-begun")


class Message(NamedTuple):
    """A message of a stream, as a gateway takes it in."""

    reader: str
    seq: int
    take: Callable[[RunIndex], Awaitable[object]]
    read: Read | None = None


def messages(chance: random.Random, most: int = 60) -> list[Message]:
    """The messages of both streams, by sequence."""
    trees = {name: _Tree(name, number % len(STREAMS), chance) for number, name in enumerate(TREES)}
    ends = [0] * len(STREAMS)
    found: list[Message] = []
    while len(found) < most:
        tree = trees[chance.choice(TREES)]
        ends[tree.shard] += 1
        found.append(tree.next(ends[tree.shard], at=float(len(found) + 1)))
    return found


class _Tree:
    """Writes what agents and gateways would of one tree, also what comes late."""

    def __init__(self, name: str, shard: int, chance: random.Random) -> None:
        self.name, self.shard, self._chance = name, shard, chance
        self._state = "new"
        self._asked: ev.RunAccepted | None = None
        self._children = 0
        self._held: dict[str, str] = {}

    def next(self, seq: int, at: float) -> Message:
        states = {
            "new": self._new,
            "asked": self._begun,
            "open": self._goes_on,
            "ended": self._late,
            "gone": self._gone,
        }
        return states[self._state](seq, at)

    def _new(self, seq: int, at: float) -> Message:
        if self._chance.random() < 0.3:
            return self._file(seq, at)
        self._state, labels = "asked", {"at": f"{at:g}", "name": self.name}
        self._asked = accepted(self.name, text=f"Do {self.name} at {at:g}.", at=at, labels=labels)
        return self._message(Read(self.shard, seq, self.name, None, set(), at, task=self._asked.task))

    def _begun(self, seq: int, at: float) -> Message:
        assert self._asked is not None
        if self._chance.random() < 0.2:
            return self._erased(seq, at)
        self._state = "open"
        return self._entry(seq, self.name, at, self._asked)

    def _goes_on(self, seq: int, at: float) -> Message:
        what = self._chance.random()
        if what < 0.1:
            return self._file(seq, at)
        if what < 0.3:
            self._children += 1
            child = call_id(self.name, 1, self._children)
            return self._entry(seq, child, at, accepted(child, self.name, text=f"Help at {at:g}.", at=at))
        if what < 0.5:
            run = call_id(self.name, 1, self._children) if self._children else self.name
            call = call_id(run, 2, self._chance.randrange(3))
            self._held[call] = run
            return self._entry(seq, run, at, self._question(call))
        if what < 0.7 and self._held:
            call = self._chance.choice(sorted(self._held))
            ruled = ev.ApprovalDecided(call=call, verdict="rejected", sender="ann")
            given_up = ev.CallDropped(call=call, reason="it is not needed")
            return self._entry(seq, self._held.pop(call), at, self._chance.choice([ruled, given_up]))
        if what < 0.8:
            self._state, self._held = "ended", {}
            return self._entry(seq, self.name, at, ev.RunFinished(state="success", output=f"Done at {at:g}."))
        if what < 0.85:
            return self._message(Read(self.shard, seq, self.name, None, {self._blob()}, at))
        if what < 0.9:
            return self._erased(seq, at)
        return self._entry(seq, self.name, at, called(1))

    def _late(self, seq: int, at: float) -> Message:
        what = self._chance.random()
        if what < 0.4:
            return self._erased(seq, at)
        return self._file(seq, at) if what < 0.6 else self._entry(seq, self.name, at, IGNORED)

    def _gone(self, seq: int, at: float) -> Message:
        what = self._chance.random()
        if what < 0.2:
            return self._file(seq, at)
        if what < 0.4:
            return self._entry(seq, call_id(self.name, 1, 1), at, IGNORED)
        if what < 0.5:
            self._state = "open"
            return Message(f"{self.shard}/journals", seq, lambda index: apply_import(index, seq, self.name))
        return self._new(seq, at)

    def _erased(self, seq: int, at: float) -> Message:
        self._state, self._children, self._held = "gone", 0, {}
        lifecycle = Erased(id="e", tree=self.name, run=self.name, at=at)
        return Message(f"{self.shard}/journals", seq, lambda index: apply_erasure(index, seq, lifecycle))

    def _question(self, call: str) -> ev.ApprovalRequested:
        return ev.ApprovalRequested(call=call, name="pay", kind="tool", arguments={}, reason="always")

    def _blob(self) -> str:
        return "blob:" + self._chance.choice("abc") * 64

    def _file(self, seq: int, at: float) -> Message:
        return self._message(Read(self.shard, seq, self.name, None, {self._blob()}, at, is_file=True))

    def _entry(self, seq: int, run: str, at: float, *events: ev.AnyEvent) -> Message:
        one: Entry = entry(run, seq, at, *events)
        return self._message(Read(self.shard, seq, self.name, Stored(seq, one), {self._blob()}, at))

    def _message(self, read: Read) -> Message:
        kind = "files" if read.is_file else "journals" if read.task is None else "tasks"
        return Message(f"{read.shard}/{kind}", read.seq, lambda index: apply_read(index, read), read)


class Gateway:
    """Reads the streams at its own pace, and saves what follows."""

    def __init__(self, database: Database, held: list[Message]) -> None:
        self.database = database
        self.index = RunIndex(database, STREAMS)
        self._messages = {reader: [one for one in held if one.reader == reader] for reader in READERS}
        self.positions = dict.fromkeys(READERS, 0)
        self.index.begin_reading(lambda: list(self.positions.values()), [], self._go_on)
        self.index.note_caught_up()

    def _go_on(self, positions: Any) -> None:
        self.positions = dict(zip(READERS, positions, strict=True))

    async def open(self) -> None:
        """Go on from what is saved, unless it does: as its service does until it can."""
        while not self.index.is_open:
            try:
                await self.index.open()
            except RunIndexUnavailable:
                continue
        self.index.note_caught_up()

    def next_of(self, reader: str) -> Message | None:
        """Return what a reader comes upon next; None at its end, or where it waits for the journals."""
        found = next((one for one in self._messages[reader] if one.seq > self.positions[reader]), None)
        if found is None or reader.endswith("journals"):
            return found
        journals = f"{reader.partition('/')[0]}/journals"
        before = [one.seq for one in self._messages[journals] if one.seq < found.seq]
        return found if self.positions[journals] >= max(before, default=0) else None

    async def read(self, reader: str) -> bool:
        """Take in the next message of a reader, if there is one."""
        await self.open()
        if (found := self.next_of(reader)) is None:
            return False
        try:
            await found.take(self.index)
        except RunIndexUnavailable:
            return True  # it is read again
        self.positions[reader] = found.seq
        return True

    async def read_all(self, up_to: Mapping[str, int] | None = None) -> None:
        """Take in everything, or everything up to these positions."""
        readers = [one for one in READERS if up_to is None or up_to.get(one)]
        while any([await self._read_up_to(one, up_to) for one in readers]):
            pass

    async def _read_up_to(self, reader: str, up_to: Mapping[str, int] | None) -> bool:
        found = self.next_of(reader)
        if found is None or (up_to is not None and found.seq > up_to[reader]):
            return False
        return await self.read(reader)

    async def save(self) -> None:
        """Save, or fail as a service may."""
        await self.open()
        try:
            await self.index.flush()
        except RunIndexUnavailable:
            return

    async def rebuild(self) -> None:
        """Make the index again from the journals, and put it in the place of what is there."""
        await self.open()
        beside = self.index._database.beside()
        fresh = Gateway(beside, [one for many in self._messages.values() for one in many])
        try:
            await fresh.open()

            async def caught_up(positions: Any) -> None:
                await fresh.read_all(dict(zip(READERS, positions, strict=True)))

            await self.index.adopt(fresh.index, caught_up)
            self.index.note_caught_up()
        except RunIndexUnavailable:
            return
        finally:
            if not fresh.index.is_closed:
                await beside.close()


class Rows(NamedTuple):
    """Return the contents of an index for comparison, by the keys of its tables."""

    trees: dict[Any, Any]
    runs: dict[Any, Any]
    calls: dict[Any, Any]
    blobs: dict[Any, Any]
    labels: dict[Any, Any]
    texts: dict[Any, Any]


class Reads(Protocol):
    """A database that answers questions."""

    async def read(self, query: SqlQuery) -> Sequence[tuple[Any, ...]]: ...


_TABLES = (
    "SELECT tree, floor, seq, ended_at, unstarted_at, erased_at FROM trees WHERE seq > 0",
    "SELECT id, tree, seq, state, waiting_for, approvals, ended_at, summary FROM runs",
    "SELECT call, tree, seq, state, at, body, asked_at FROM calls WHERE state < 2",
    "SELECT tree || '/' || blob, tree FROM blobs",
    "SELECT run || '/' || name, tree, value FROM labels",
    "SELECT id, tree, task, answer FROM run_texts JOIN runs ON runs.rowid = run_texts.rowid",
)


async def rows_of(database: Reads) -> Rows:
    """Return what is saved."""
    found = [await database.read(SqlQuery(one)) for one in _TABLES]
    trees, runs, _, *others = ({row[0]: row[1:] for row in rows} for rows in found)
    return Rows(trees, runs, {(row[0], row[-1]): row[1:] for row in found[2]}, *others)


async def folded(held: list[Message], up_to: Mapping[str, int] | None = None) -> Rows:
    """Return what one gateway makes of the messages, alone and in their order."""
    index = await new_index(database := InlineDatabase(), STREAMS)
    for one in held:
        if up_to is None or one.seq <= up_to.get(one.reader, 0):
            await one.take(index)
    await index.flush()
    return await rows_of(database)


async def check_place(database: Database, held: list[Message]) -> None:
    """Everything up to the saved place is saved: a row is there, is newer, or does not count any more."""
    place = (await load(database)).place  # before the rows: they only become newer
    found, least = await rows_of(database), await folded(held, place)
    floors = {tree: row[0] for tree, row in found.trees.items()}
    for tree, row in least.trees.items():
        assert found.trees[tree][1] >= row[1], (tree, place)
    for run, row in least.runs.items():
        assert run in found.runs or floors[row[0]] >= row[1], (run, place)
        assert run not in found.runs or found.runs[run][1] >= row[1] or floors[row[0]] >= row[1], (run, place)
    for table in ("calls", "blobs", "labels", "texts"):
        for key, row in getattr(least, table).items():
            is_newer = found.trees[row[0]][1] > least.trees.get(row[0], (0, 0))[1] if row[0] in found.trees else False
            assert key in getattr(found, table) or is_newer, (table, key, place)


def check_same(found: Rows, wanted: Rows, held: list[Message]) -> None:
    """Check that an index has what one gateway alone would have. A file that came between an erasure and the run's next
    beginning may count or not: files have their own reader."""
    read = [one.read for one in held if one.read is not None and one.read.is_file]
    files = {f"{one.tree}/{blob}" for one in read for blob in one.refs if one.seq > found.trees.get(one.tree, (0,))[0]}
    assert found.blobs.keys() >= wanted.blobs.keys()
    assert found.blobs.keys() - wanted.blobs.keys() <= files
    assert found._replace(blobs={}) == wanted._replace(blobs={})


class Trouble:
    """Has the writes of a database fail, some of them after they were carried out."""

    def __init__(self, chance: random.Random, share: float) -> None:
        self._chance, self.share = chance, share

    async def around(self, write: Callable[[list[Statement]], Awaitable[None]], statements: Any) -> None:
        fails = self._chance.random() < self.share
        if fails and self._chance.random() < 0.5:
            raise RunIndexUnavailable("the connection broke before it was sent")
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)  # others may write between its look and its write
        await write(statements)
        if fails:
            raise RunIndexUnavailable("the connection broke before it was answered")


async def play(
    chance: random.Random, held: list[Message], new_database: Callable[[], Database], steps: int
) -> Database:
    """Let gateways read and save, at once and in any order, be killed and rebuild; then let all of them come to the
    end. Return a database of theirs."""
    gateways = [Gateway(new_database(), held) for _ in range(chance.randrange(1, 5))]
    paces = [chance.choice([1, 4, 12]) for _ in gateways]
    for _ in range(steps):
        at = chance.randrange(len(gateways))
        what = chance.random()
        if what < 0.62:
            for _ in range(chance.randrange(1, 1 + paces[at])):
                await gateways[at].read(chance.choice(READERS))
        elif what < 0.78:
            await gateways[at].save()
        elif what < 0.86:
            await asyncio.gather(*(one.save() for one in gateways))
        elif what < 0.92:
            for name in [one for one in gateways[at].index._trees if chance.random() < 0.5]:
                if name not in gateways[at].index._changed:
                    del gateways[at].index._trees[name]
        elif what < 0.96:
            gateways[at] = Gateway(new_database(), held)
        elif what < 0.98:
            others = [one.save() for one in gateways if one is not gateways[at]]
            await asyncio.gather(gateways[at].rebuild(), *others)
        else:
            await gateways[at].open()
            await check_place(gateways[at].database, held)
    for one in gateways:
        while await _comes_to_the_end(one):
            pass
    return gateways[0].database


async def _comes_to_the_end(gateway: Gateway) -> bool:
    """Return whether it is not there yet: a save may fail, or find another index."""
    await gateway.open()
    await gateway.read_all()
    try:
        await gateway.index.flush()
    except RunIndexUnavailable:
        return True
    return False
