"""The index in PostgreSQL, which several gateways share: each writes, and no session is more than its transactions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar
from uuid import uuid4

import psycopg
from psycopg import IsolationLevel, sql
from psycopg.conninfo import conninfo_to_dict

from cadre.errors import RunIndexUnavailable, SettingError
from cadre_gateway.index.database.port import (
    GENERATION,
    POSTGRES,
    SET_META,
    VERSION,
    IndexReplaced,
    Row,
    SqlQuery,
    Statement,
    Value,
    emptying,
)

log = logging.getLogger("cadre.gateway")

_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 30.0
"""Seconds without an answer after which a server counts as gone."""

_UNUSED_SECONDS = 3 * 3600.0
"""Seconds without a save after which tables are out of use: a gateway saves at least once an hour."""

_IN_TRANSACTION = {
    "statement_timeout": "25s",
    "lock_timeout": "20s",
    # The server releases the rows of a gateway whose machine is gone.
    "idle_in_transaction_session_timeout": "10s",
}
"""Set in each transaction: a pooler may give the next one another session."""

_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Row]


class PostgresDatabase:
    """Tables in a schema for each version of them."""

    dialect = POSTGRES
    is_shared = True

    def __init__(self, url: str, schema: str, *, fresh: bool = False) -> None:
        """`fresh` begins with empty tables, which are dropped when they are closed. Raises SettingError."""
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise SettingError(f"CADRE_INDEX_URL is no address of PostgreSQL: {error}") from None
        self._url, self._base = url, schema
        self._schema = f"{schema}_{VERSION.replace('.', '_')}" + ("_new" if fresh else "")
        self._name = f"the index in PostgreSQL ({parts.get('host', 'localhost')}, {parts.get('dbname', '')})"
        self._is_fresh = fresh
        self._generation = ""
        self._writing: Connection | None = None
        self._reading: Connection | None = None
        self._reader = asyncio.Lock()
        self._is_closed = False

    async def open(self) -> None:
        """Make the tables unless they are there, and take note of their generation. Do nothing where that is done."""
        if self._generation:
            return
        with contextlib.suppress(IndexReplaced):  # they are not there
            self._generation = "" if self._is_fresh else await self._found_generation()
        if not self._generation:
            await self._make_tables()
            self._generation = await self._found_generation()

    async def empty(self) -> None:
        """Delete all rows, and give the tables another generation."""
        generation = uuid4().hex
        async with self._changing() as connection:
            await self._check_generation(connection)
            await self._keep_others_out(connection)
            await _carry_out(connection, emptying(generation))
        self._generation = generation

    async def write(self, statements: Sequence[Statement]) -> None:
        """Carry out all of them in one transaction, or none. Raise IndexReplaced for another generation of tables."""
        async with self._changing() as connection:
            await self._check_generation(connection)
            await _carry_out(connection, statements)

    async def read(self, query: SqlQuery) -> list[Row]:
        """Return the rows that answer a question."""
        return (await self.read_all([query]))[0]

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        """Return the rows of several questions, as they were at one moment."""

        async def ask(connection: Connection) -> list[list[Row]]:
            async with self._transaction(connection):
                return [await _rows(connection, one.sql, *one.values) for one in queries]

        return await self._read(ask)

    def beside(self) -> Self:
        """Return empty tables in a second schema. Those of a rebuild that has not ended are dropped for them."""
        return type(self)(self._url, self._base, fresh=True)

    async def adopt(self, other: Self) -> None:
        """Replace the tables by those of the other, and close the other. Raise IndexReplaced when the other's are not
        those that it opened."""
        former = f"{self._schema}_old"
        async with self._changing() as connection:
            await _drop(connection, former)
        async with other._changing() as connection:
            await other._check_generation(connection)
            await self._keep_others_out(connection)
            for name, new_name in ((self._schema, former), (other._schema, self._schema)):
                await connection.execute(
                    sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(name), sql.Identifier(new_name))
                )
        self._generation, other._is_fresh = other._generation, False
        await other.close()
        async with self._changing() as connection:
            await _drop(connection, former)

    async def tidy(self) -> None:
        """Drop tables of other versions, and of unfinished rebuilds, that no process writes any more."""
        pattern = f"^{self._base}_[0-9]+_[0-9]+(_new|_old)?$"
        others = (
            "SELECT nspname FROM pg_namespace WHERE nspname ~ ? AND nspname <> ?"
            " AND to_regclass(quote_ident(nspname) || '.place') IS NOT NULL"
        )
        for (schema,) in await self.read(SqlQuery(others, (pattern, self._schema))):
            async with self._changing() as connection:
                place = sql.Identifier(schema, "place")
                unused = sql.SQL("SELECT coalesce(max(saved_at), 0) < %s FROM {}").format(place)
                found = await connection.execute(unused, (time.time() - _UNUSED_SECONDS,))
                if await found.fetchall() == [(True,)]:
                    log.info("tables of the index that no gateway writes any more are dropped: %s", schema)
                    await _drop(connection, schema)

    async def bytes(self) -> int:
        """Return the size of the tables in bytes."""
        size = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'"
        )
        return int((await self.read(SqlQuery(size, (self._schema,))))[0][0])

    async def close(self) -> None:
        """Release the database. Fresh tables that were not adopted are dropped, unless another rebuild has made its
        own in their place."""
        try:
            if self._is_fresh and self._generation:
                with contextlib.suppress(IndexReplaced):
                    async with self._changing() as connection:
                        await self._check_generation(connection)
                        await _drop(connection, self._schema)
        finally:
            self._is_closed = True
            await self._hang_up()

    # --- tables

    async def _found_generation(self) -> str:
        return str((await self.read(GENERATION))[0][0])

    async def _check_generation(self, connection: Connection) -> None:
        if await _rows(connection, GENERATION.sql) != [(self._generation,)]:
            self._generation = ""
            raise IndexReplaced(f"{self._name} was made again")

    async def _make_tables(self) -> None:
        # Another gateway may be making them at this moment.
        async with self._changing() as connection:
            try:
                async with connection.transaction():
                    if self._is_fresh:
                        await _drop(connection, self._schema)
                    await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
            except (psycopg.errors.DuplicateSchema, psycopg.errors.UniqueViolation):
                return
            await connection.execute(self.dialect.tables.encode())
            await connection.execute(_translated(SET_META), ("generation", uuid4().hex))
            # Until a reader's position is saved, this says that the tables are in use.
            await connection.execute(b"INSERT INTO place VALUES ('', '', 0, %s)", (time.time(),))

    async def _keep_others_out(self, connection: Connection) -> None:
        """Wait for the transactions of other gateways, and have later ones wait: each reads `meta` before it writes."""
        meta = sql.Identifier(self._schema, "meta")
        await connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(meta))

    # --- connections

    async def _hang_up(self) -> None:
        for connection in (self._writing, self._reading):
            if connection is not None:
                await connection.close()

    @asynccontextmanager
    async def _transaction(self, connection: Connection) -> AsyncGenerator[None]:
        settings = _IN_TRANSACTION | {"search_path": f'"{self._schema}"'}
        calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
        async with connection.transaction():
            await connection.execute(f"SELECT {calls}".encode(), [one for pair in settings.items() for one in pair])
            yield

    @asynccontextmanager
    async def _changing(self) -> AsyncGenerator[Connection]:
        async with self._told():
            if self._writing is None or self._writing.closed:
                self._writing = await self._connection("writes", IsolationLevel.READ_COMMITTED)
            async with self._transaction(self._writing):
                yield self._writing

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Return what `work` returns, also when the server was started again since the last question."""
        async with self._reader, self._told():
            if self._reading is not None and not self._reading.closed:
                with contextlib.suppress(psycopg.Error):
                    return await work(self._reading)
                if not self._reading.closed:
                    await self._reading.close()
            self._reading = await self._connection("reads", IsolationLevel.REPEATABLE_READ)
            return await work(self._reading)

    async def _connection(self, does: str, isolation: IsolationLevel) -> Connection:
        if self._is_closed:
            raise RunIndexUnavailable(f"{self._name} is closed: this process stops")
        connection = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            application_name=f"cadre-gateway {socket.gethostname()} {does}"[:63],
            prepare_threshold=None,
            keepalives_idle=3,
            keepalives_interval=2,
            keepalives_count=3,
        )
        await connection.set_isolation_level(isolation)  # of each transaction
        return connection

    @asynccontextmanager
    async def _told(self) -> AsyncGenerator[None]:
        """Tell what the database's errors mean here."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                yield
        except _MISSING:
            self._generation = ""
            raise IndexReplaced(f"{self._name} has no tables: they are made again") from None
        except (psycopg.Error, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                await self._hang_up()
            said = str(error).strip() or "no answer"
            raise RunIndexUnavailable(
                f"{self._name} fails: {said}; runs go on, lists come back with the database (CADRE_INDEX_URL)"
            ) from error


def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _values(row: Sequence[Value]) -> list[Value]:
    """Return the values without the characters that PostgreSQL cannot store in a text."""
    return [one.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(one, str) else one for one in row]


async def _carry_out(connection: Connection, statements: Sequence[Statement]) -> None:
    async with connection.cursor() as cursor:
        for statement, rows in statements:
            await cursor.executemany(_translated(statement), [_values(row) for row in rows])


async def _rows(connection: Connection, statement: str, *values: Value) -> list[Row]:
    return await (await connection.execute(_translated(statement), _values(values))).fetchall()


async def _drop(connection: Connection, schema: str) -> None:
    await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
