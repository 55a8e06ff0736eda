"""The index in PostgreSQL, which several gateways share: one of them writes, as long as its connection lasts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cadre.errors import RunIndexUnavailable, SettingError
from cadre_gateway.index.database.dialect import POSTGRES
from cadre_gateway.index.database.port import Row, SqlQuery, Statement, Value
from cadre_gateway.index.database.schema import VERSION

log = logging.getLogger("cadre.gateway")

_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 30.0
"""A server that answers nothing for so long is not there."""

_SESSION = {
    "statement_timeout": "25s",
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "30s",
    # The server lets go of a writer whose machine is gone.
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "default_transaction_isolation": "repeatable read",
}
_LOCK = "hashtextextended(%s, 0)"
_HOLDERS = (
    "FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    f" AND (classid::bigint << 32 | objid::bigint) = {_LOCK} AND pid <> pg_backend_pid()"
)

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Row]


class PostgresDatabase:
    """Tables in a schema of their own, one for each version of them. Who writes holds the schema's advisory lock in
    the session that it writes in: what has lost the lock has lost the connection."""

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
        self._writing: Connection | None = None
        self._leads = False
        self._reading: Connection | None = None
        self._reader = asyncio.Lock()
        self._is_closed = False

    async def lead(self) -> bool:
        """Whether this process is the one that writes, or has become it now."""
        async with self._told():
            if self._writing is None or self._writing.closed:
                self._leads, self._writing = False, await self._connection("writes")
            if self._leads:
                await self._writing.execute("SELECT 1")
                return True
            found = await self._writing.execute(f"SELECT pg_try_advisory_lock({_LOCK})", (self._schema,))
            if (await found.fetchall())[0][0]:
                await self._make_tables(self._writing)
                self._leads = True
                if not self._is_fresh:
                    log.info("this gateway writes %s", self._name)
                    await self._drop_former(self._writing)
            return self._leads

    async def write(self, statements: Sequence[Statement]) -> None:
        """Carries out all of them in one transaction, or none."""
        async with self._told(), self._transaction() as connection, connection.cursor() as cursor:
            for statement, rows in statements:
                await cursor.executemany(_translated(statement), [_values(row) for row in rows])

    async def read(self, query: SqlQuery) -> list[Row]:
        """The rows of what was written."""
        return (await self.read_all([query]))[0]

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        """The rows of several questions, at once."""

        async def ask(connection: Connection) -> list[list[Row]]:
            async with connection.transaction():
                return [
                    await (await connection.execute(_translated(one.sql), _values(one.values))).fetchall()
                    for one in queries
                ]

        return await self._read(ask)

    async def writer(self) -> str:
        """Names the other process that writes; "" when there is none."""
        found = await self._read(
            lambda connection: _rows(connection, f"SELECT application_name {_HOLDERS}", self)
        )
        return str(found[0][0]) if found else ""

    async def depose(self) -> None:
        """Ends the session of the other process that writes: it stands still."""
        log.warning("the gateway that writes %s stands still: its place is taken", self._name)
        await self._read(
            lambda connection: _rows(connection, f"SELECT pg_terminate_backend(pid) {_HOLDERS}", self)
        )

    def beside(self) -> Self:
        """Empty tables in a schema beside."""
        return type(self)(self._url, self._base, fresh=True)

    async def adopt(self, other: Self) -> None:
        """Takes the place of what it has with what the other has, and closes that."""
        async with self._told(), self._transaction() as connection:
            await _drop(connection, self._schema)
            await connection.execute(
                sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(
                    sql.Identifier(other._schema), sql.Identifier(self._schema)
                )
            )
        other._is_fresh = False
        await other.close()

    async def bytes(self) -> int:
        """How much room the tables take."""
        size = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"
        )
        return int((await self._read(lambda connection: _rows(connection, size, self)))[0][0])

    async def close(self) -> None:
        """Lets go of the database."""
        try:
            if self._is_fresh and self._leads and self._writing is not None:
                async with self._told():
                    await _drop(self._writing, self._schema)
        finally:
            self._is_closed, self._leads = True, False
            await self._hang_up()

    # --- connections

    async def _hang_up(self) -> None:
        for connection in (self._writing, self._reading):
            if connection is not None:
                await connection.close()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Connection]:
        if not self._leads or self._writing is None:
            raise RunIndexUnavailable(f"{self._name} is written by another gateway now")
        async with self._writing.transaction():
            found = await self._writing.execute(f"SELECT pg_try_advisory_xact_lock({_LOCK})", (self._schema,))
            if not (await found.fetchall())[0][0]:
                self._leads = False
                raise RunIndexUnavailable(
                    f"{self._name} is reached through a pooler that gives each transaction another session: give"
                    " CADRE_INDEX_URL the server's own address, or the pooler session mode"
                )
            try:
                yield self._writing
            except psycopg.errors.UndefinedTable:
                await self._writing.close()  # who dropped them is not known: they are made again
                raise

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What `work` returns, also when the server was started again since the last question."""
        async with self._reader, self._told():
            if self._reading is not None and not self._reading.closed:
                with contextlib.suppress(psycopg.Error):
                    return await work(self._reading)
                if not self._reading.closed:
                    await self._reading.close()
            self._reading = await self._connection("reads")
            return await work(self._reading)

    async def _connection(self, does: str) -> Connection:
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
        settings = _SESSION | {"search_path": f'"{self._schema}"'}
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        await connection.execute(f"SELECT {calls}", [one for pair in settings.items() for one in pair])
        return connection

    @asynccontextmanager
    async def _told(self) -> AsyncGenerator[None]:
        """Tells what the database's errors mean here."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                yield
        except psycopg.errors.UndefinedTable:
            raise RunIndexUnavailable(
                f"{self._name} has no tables yet: the gateway that writes makes them"
            ) from None
        except (psycopg.Error, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                await self._hang_up()
            said = str(error).strip() or "no answer"
            raise RunIndexUnavailable(
                f"{self._name} fails: {said}; runs go on, lists come back with the database (CADRE_INDEX_URL)"
            ) from error

    async def _make_tables(self, connection: Connection) -> None:
        async with connection.transaction():
            if self._is_fresh:
                await _drop(connection, self._schema)
            found = await connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,))
            if await found.fetchall():
                return
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
            for statement in POSTGRES.tables:
                await connection.execute(statement.encode())

    async def _drop_former(self, connection: Connection) -> None:
        """Drops the tables of other versions that no gateway writes any more."""
        found = await connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname ~ %s AND nspname <> %s"
            f" AND pg_try_advisory_xact_lock({_LOCK.replace('%s', 'nspname')})",
            (f"^{self._base}_[0-9]+_[0-9]+(_new)?$", self._schema),
        )
        for (former,) in await found.fetchall():
            log.info("the index of another version is dropped: %s", former)
            await _drop(connection, former)


def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _values(row: Sequence[Value]) -> list[Value]:
    """The values without what PostgreSQL keeps in no text."""
    return [one.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(one, str) else one for one in row]


async def _rows(connection: Connection, statement: str, of: PostgresDatabase) -> list[Row]:
    return await (await connection.execute(statement.encode(), (of._schema,))).fetchall()


async def _drop(connection: Connection, schema: str) -> None:
    await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
