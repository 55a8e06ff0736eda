"""The gateway's index over a database in memory that answers at once."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Self
from uuid import uuid4

from cadre.journal.entry import Entry
from cadre_gateway.index.database import sqlite
from cadre_gateway.index.database.port import (
    SQLITE,
    Database,
    IndexReplaced,
    Row,
    SqlQuery,
    Statement,
    emptying,
)
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import EntryStatus


class InlineDatabase:
    """A Database for tests in a time of their own: nothing is waited for. Those of one file are of one deployment."""

    dialect = SQLITE

    def __init__(self, file: sqlite3.Connection | None = None) -> None:
        self.is_shared = file is not None
        self.file = file or new_file()
        self._generation = ""

    async def open(self) -> None:
        self._generation = self._generation or sqlite.generation_of(self.file)

    async def empty(self) -> None:
        generation = uuid4().hex
        await self.write(emptying(generation))
        self._generation = generation

    async def write(self, statements: Sequence[Statement]) -> None:
        try:
            sqlite.write(self.file, statements, self._generation)
        except IndexReplaced:
            self._generation = ""
            raise

    async def read(self, query: SqlQuery) -> list[Row]:
        return sqlite.read(self.file, query)

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        return [sqlite.read(self.file, query) for query in queries]

    def beside(self) -> Self:
        return type(self)()

    async def adopt(self, other: Self) -> None:
        other.file.backup(self.file)
        self._generation = other._generation

    async def tidy(self) -> None: ...

    async def bytes(self) -> int:
        return 0

    async def close(self) -> None: ...


def new_file() -> sqlite3.Connection:
    """An empty index in memory."""
    file = sqlite3.connect(":memory:", isolation_level=None)
    sqlite.make_tables(file)
    return file


async def new_index(database: Database | None = None, streams: Sequence[str] = ("s0",)) -> RunIndex:
    index = RunIndex(database or InlineDatabase(), streams)
    await index.open()
    return index


async def take(
    index: RunIndex, seq: int, entry: Entry, refs: Iterable[str] = (), at: float | None = None
) -> EntryStatus:
    """As the gateway takes in what it reads."""
    async with index.changing(entry.tree, "0/journals", seq) as tree:
        status = tree.record.add_entry(seq, entry, refs, entry.at if at is None else at)
        if status is EntryStatus.CURRENT:
            tree.runs.apply(seq, entry)
        return status


async def index_of(entries: Iterable[Entry], database: Database | None = None) -> RunIndex:
    index = await new_index(database)
    for seq, one in enumerate(entries, start=1):
        await take(index, seq, one)
    return index


async def erased_at(index: RunIndex, tree: str) -> float | None:
    """Return the time at which the index says the tree was erased; None if it was not, or was imported since."""
    async with index.changing(tree) as found:
        erased = found.record.erased
    return erased.at if erased is not None else None
