"""Gateways that share an index and elect none: no matter what they read, save, lose and rebuild at once, the index ends
as one gateway alone would have it, and its place is true all the time."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from cadre.adapters.nats.reading.tail import Read
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre_gateway.index.database.port import POSTGRES, SqlQuery, Statement
from cadre_gateway.index.database.postgres import Connection, PostgresDatabase
from cadre_gateway.index.run_index import apply_read
from harness.postgres_server import PostgresServer
from unit.index_worlds import Gateway, Trouble, check_same, folded, messages, play, rows_of
from unit.inline_index import InlineDatabase, new_file
from unit.journal_entries import accepted, called, entry, story


class LossySqlite(InlineDatabase):
    def __init__(self, file: sqlite3.Connection | None = None, trouble: Trouble | None = None) -> None:
        super().__init__(file)
        self.trouble = trouble

    async def write(self, statements: Sequence[Statement]) -> None:
        if self.trouble is None:
            await super().write(statements)
        else:
            await self.trouble.around(super().write, statements)


class LossyPostgres(PostgresDatabase):
    """Gives each transaction a session in which nothing is left of those before, as a pooler may."""

    trouble: Trouble | None = None

    @asynccontextmanager
    async def _transaction(self, connection: Connection) -> AsyncIterator[None]:
        await connection.execute("DISCARD ALL")
        async with super()._transaction(connection):
            yield

    async def write(self, statements: Sequence[Statement]) -> None:
        if self.trouble is None:
            await super().write(statements)
        else:
            await self.trouble.around(super().write, statements)


@pytest.mark.parametrize("seed", range(0, 120, 20))
def test_a_file_ends_as_one_gateway_alone_would_have_it(seed: int) -> None:
    async def check(chance: random.Random) -> None:
        file, trouble = new_file(), Trouble(chance, 0.1)
        held = messages(chance)
        database = await play(chance, held, lambda: LossySqlite(file, trouble), steps=150)
        trouble.share = 0.0
        check_same(await rows_of(database), await folded(held), held)

    for one in range(seed, seed + 20):
        asyncio.run(check(random.Random(one)))


@pytest.mark.parametrize("seed", range(8))
async def test_a_database_ends_as_one_gateway_alone_would_have_it(seed: int, postgres: PostgresServer) -> None:
    chance = random.Random(1000 + seed)
    schema, trouble, opened = f"w{uuid4().hex[:10]}", Trouble(chance, 0.1), list[LossyPostgres]()

    def new_database() -> LossyPostgres:
        opened.append(LossyPostgres(postgres.url, schema))
        opened[-1].trouble = trouble
        return opened[-1]

    held = messages(chance)
    try:
        database = await play(chance, held, new_database, steps=100)
        found, wanted = await rows_of(database), await folded(held)
        check_same(found._replace(texts={}), wanted._replace(texts={}), held)
        for run, (tree, *texts) in wanted.texts.items():
            [vectors] = await opened[0].read(
                SqlQuery(
                    "SELECT CAST(? AS tsvector)::text, CAST(? AS tsvector)::text",
                    [POSTGRES.words_of(one) for one in texts],
                )
            )
            assert found.texts[run] == (tree, *vectors)
        assert found.texts.keys() == wanted.texts.keys()
    finally:
        for one in opened:
            await one.close()


# --- what several gateways write


class VirtualLoop(asyncio.SelectorEventLoop):
    """Let time pass when nothing else is left to do."""

    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


Queue = asyncio.Queue[tuple[int, Entry]]


async def written_by(gateways: int, busy: Sequence[str], seconds: float = 60.0) -> int:
    """Return how many rows a minute of work writes: runs that begin and end, and long ones which are always busy."""
    file, chance = new_file(), random.Random(1)
    all_of = [(Gateway(InlineDatabase(file), []), Queue()) for _ in range(gateways)]
    tasks = []
    for one, queue in all_of:
        await one.open()
        tasks.append(asyncio.create_task(one.index.save_now_and_then()))
        tasks.append(asyncio.create_task(_read(one, queue, chance)))
    before, journals, seq = file.total_changes, [story(f"r{number}") for number in range(600)], 0
    while asyncio.get_running_loop().time() < seconds:
        seq += 1
        written = chance.choice(journals[:20]).pop(0)
        if busy and seq % 2:
            written = entry(chance.choice(busy), seq, 1.0, accepted("busy"), called(1))
        journals = [one for one in journals if one]
        for _, queue in all_of:
            queue.put_nowait((seq, written))
        await asyncio.sleep(chance.expovariate(50))
    await asyncio.sleep(5.0)
    for task in tasks:
        task.cancel()
    for one, _ in all_of:
        assert one.index.positions[0] == seq
        assert not one.index._changed
    return file.total_changes - before


async def _read(gateway: Gateway, queue: Queue, chance: random.Random) -> None:
    while True:
        seq, written = await queue.get()
        await asyncio.sleep(chance.uniform(0.001, 0.02))
        await apply_read(gateway.index, Read(0, seq, written.tree, Stored(seq, written), set(), 1.0))
        gateway.positions["0/journals"] = seq


@pytest.mark.parametrize("busy", [(), ("b0",), tuple(f"b{number}" for number in range(50))])
def test_three_gateways_write_hardly_more_rows_than_one(busy: Sequence[str]) -> None:
    """Each saves after a time of chance, and leaves to others what they have saved."""

    def measured(gateways: int) -> int:
        random.seed(7)
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(written_by(gateways, busy))

    one, three = measured(1), measured(3)
    print(f"three gateways write {three / one:.2f} times the rows of one ({three} and {one})")
    assert three <= 1.3 * one
