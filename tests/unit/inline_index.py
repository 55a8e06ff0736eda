"""The gateway's index over a database in memory that answers at once."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Self

from cadre.journal.entry import Entry
from cadre_gateway.index.database import sqlite
from cadre_gateway.index.database.dialect import SQLITE
from cadre_gateway.index.database.port import Database, Row, SqlQuery, Statement
from cadre_gateway.index.opening import open_index, unopened_index
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import EntryStatus


class InlineDatabase:
    """A Database for tests in a time of their own: nothing is waited for."""

    dialect = SQLITE
    is_shared = False

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        sqlite.make_tables(self._connection)

    async def lead(self) -> bool:
        return True

    async def writer(self) -> str:
        return ""

    async def depose(self) -> None: ...

    async def write(self, statements: Sequence[Statement]) -> None:
        sqlite.write(self._connection, statements)

    async def read(self, query: SqlQuery) -> list[Row]:
        return sqlite.read(self._connection, query)

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        return [sqlite.read(self._connection, query) for query in queries]

    def beside(self) -> Self:
        return type(self)()

    async def adopt(self, other: Self) -> None:
        self._connection = other._connection

    async def bytes(self) -> int:
        return 0

    async def close(self) -> None:
        self._connection.close()


async def new_index(database: Database | None = None) -> RunIndex:
    database, streams = database or InlineDatabase(), ["s0"]
    index = unopened_index(database, streams)
    await open_index(index, database, streams)
    return index


async def take(
    index: RunIndex, seq: int, entry: Entry, refs: Iterable[str] = (), at: float | None = None
) -> EntryStatus:
    """As the gateway takes in what it reads."""
    async with index.changing(entry.tree) as tree:
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


async def extent(index: RunIndex, tree: str) -> tuple[int, int]:
    """The sequences of the tree's first and last entries, as the index has them."""
    async with index.changing(tree) as found:
        return found.runs.first, found.runs.last
