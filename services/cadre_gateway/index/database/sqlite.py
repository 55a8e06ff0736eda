"""The index in a file, with SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal, Self, TypeVar
from uuid import uuid4

from cadre.errors import RunIndexUnavailable, SetupError
from cadre_gateway.index.database.port import (
    GENERATION,
    SET_META,
    SQLITE,
    VERSION,
    IndexReplaced,
    Row,
    SqlQuery,
    Statement,
    emptying,
)

log = logging.getLogger("cadre.gateway")

_NEW = ".new"
_BUSY_SECONDS = 5.0
"""Seconds to wait for another process that holds the file, such as a backup or a shell, before it is reported."""
_CACHE_KB = 2_048
_WAL_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class SqliteDatabase:
    """Keeps the index in a file of this process alone, written by one thread and read by another. Without a path the
    file has no name and one thread: SQLite unlinks it as it makes it, so nothing is left however the process ends."""

    dialect = SQLITE
    is_shared = False

    def __init__(self, path: Path | None) -> None:
        """Lock the file for this process; `open` opens it. None is a file without a name. Raise SetupError."""
        self._path = path
        self._is_beside = False
        self._lock: IO[str] | None = None
        if path is not None:
            self._lock = _locked(path)
            _drop(_beside(path))  # of a process that was killed
        self._writer = ThreadPoolExecutor(1, "index-writer")
        self._reader = self._writer if path is None else ThreadPoolExecutor(1, "index-reader")
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._generation = ""

    async def open(self) -> None:
        """Open the file, and make it where it is not usable."""
        if not self._generation:
            await self._in(self._writer, self._open)

    async def empty(self) -> None:
        """Delete all rows, and give the tables another generation."""
        generation = uuid4().hex
        await self.write(emptying(generation))
        self._generation = generation

    async def write(self, statements: Sequence[Statement]) -> None:
        """Carry out all of them in one transaction, or none. Raise IndexReplaced after the index was emptied."""
        try:
            await self._in(self._writer, lambda: write(self._opened(self._writing), statements, self._generation))
        except IndexReplaced:
            self._generation = ""
            raise

    async def read(self, query: SqlQuery) -> list[Row]:
        """Return the rows of what was written."""
        return (await self.read_all([query]))[0]

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        """Return the rows of several questions, at once."""
        return await self._in(self._reader, lambda: [read(self._opened(self._reading), query) for query in queries])

    def beside(self) -> Self:
        """Return an empty file next to this one. Raises SetupError."""
        path = _beside(self._path) if self._path is not None else None
        if path is not None:
            _remove(path)
        found = type(self)(path)
        found._is_beside = True
        return found

    async def adopt(self, other: Self) -> None:
        """Replace the content with that of the other one, and close the other one."""
        self._generation = other._generation
        if self._path is None or other._path is None:
            former, self._writing, self._reading = self._writing, other._writing, other._reading
            other._writing = other._reading = None
            await other._let_go()
            await self._in(self._writer, self._opened(former).close)
            return
        path, fresh = self._path, other._path
        await other._let_go()
        await self._close_connections()
        await self._in(self._writer, lambda: self._renew(path, fresh))
        _drop(fresh)

    def _renew(self, path: Path, fresh: Path) -> None:
        _remove(path)
        fresh.replace(path)
        self._writing, self._reading = _connection(path), _connection(path)

    async def bytes(self) -> int:
        """Return how much room the file takes, with what is not yet in it."""
        if self._path is None:
            size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            return int((await self.read(SqlQuery(size)))[0][0])
        files = [self._path, self._path.with_name(f"{self._path.name}-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    async def tidy(self) -> None:
        """Do nothing: a file has one version of the tables, and no rebuild outlives its process."""

    async def close(self) -> None:
        """Close the file; one that lies next to another is removed."""
        await self._let_go()
        if self._is_beside and self._path is not None:
            _drop(self._path)

    async def _let_go(self) -> None:
        await self._close_connections()
        for thread in (self._reader, self._writer):
            thread.shutdown()
        if self._lock is not None:
            self._lock.close()

    async def _close_connections(self) -> None:
        reading, writing = self._reading, self._writing
        self._reading = self._writing = None
        if reading is not None and reading is not writing:
            await self._in(self._reader, reading.close)
        if writing is not None:
            await self._in(self._writer, writing.close)

    def _open(self) -> None:
        if self._writing is None:
            if self._path is None:
                self._writing = self._reading = _connection("")
                make_tables(self._writing)
            else:
                writing = self._current(self._path) or self._made_anew(self._path)
                self._writing, self._reading = writing, _connection(self._path)
        self._generation = generation_of(self._writing)

    def _opened(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise RunIndexUnavailable(f"{self._name} is not open")
        return connection

    @property
    def _name(self) -> str:
        return f"the index in {self._path}" if self._path is not None else "the index of this process"

    def _current(self, path: Path) -> sqlite3.Connection | None:
        """Return the database as it was left; None for one of another version, or one that is damaged."""
        with contextlib.ExitStack() as closing:
            try:
                connection = _connection(path)
                closing.callback(connection.close)
                if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall():
                    return None
                rows = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchall()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                log.warning("the index is unusable (%s): it is rebuilt from the journals", error)
                return None
            if rows != [(VERSION,)]:
                log.info("the index is of another version: reading the journals from their start")
                return None
            closing.pop_all()
            return connection

    def _made_anew(self, path: Path) -> sqlite3.Connection:
        _remove(path)
        path.touch(mode=0o600)
        connection = _connection(path)
        make_tables(connection)
        return connection

    async def _in(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except RuntimeError:
            raise RunIndexUnavailable(f"{self._name} is closed: this process stops") from None
        except (sqlite3.Error, OSError) as error:
            raise RunIndexUnavailable(
                f"{self._name} fails: {error}; runs go on, lists come back with it (CADRE_INDEX_URL)"
            ) from error


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database."""
    connection.executescript(SQLITE.tables)
    connection.executemany(SET_META, [("version", VERSION), ("generation", uuid4().hex)])


def generation_of(connection: sqlite3.Connection) -> str:
    """Return the generation of the tables."""
    return str(read(connection, GENERATION)[0][0])


def write(connection: sqlite3.Connection, statements: Sequence[Statement], generation: str) -> None:
    """Carry out all of them in one transaction, or none. Raise IndexReplaced for tables of another generation."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if generation_of(connection) != generation:
            raise IndexReplaced("the index was made again")
        for sql, rows in statements:
            connection.executemany(sql, rows)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def read(connection: sqlite3.Connection, query: SqlQuery) -> list[Row]:
    """Return the rows that answer the question."""
    return connection.execute(query.sql, query.values).fetchall()


def _connection(path: Path | Literal[""]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    # What a power cut takes is read from the journals again.
    for setting in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        f"cache_size = -{_CACHE_KB}",
        f"journal_size_limit = {_WAL_BYTES}",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}{_NEW}")


def _drop(path: Path) -> None:
    """Remove a file with its lock, which only the process that has the file next to it may hold."""
    _remove(path)
    _lock_of(path).unlink(missing_ok=True)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _locked(path: Path) -> IO[str]:
    """Hold the file for this process, in an existing folder. Raises SetupError if another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _lock_of(path).open("w")
    except OSError as error:
        raise SetupError(f"the index cannot be kept in {path}: {error} (CADRE_INDEX_URL)") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise SetupError(
            f"another gateway keeps its index in {path}: give each its own file in CADRE_INDEX_URL"
        ) from None
    return lock
