"""The index in a file, with SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Self, TypeVar

from cadre.errors import RunIndexUnavailable, SetupError
from cadre_gateway.index.database.dialect import SQLITE
from cadre_gateway.index.database.port import Row, SqlQuery, Statement
from cadre_gateway.index.database.schema import VERSION

log = logging.getLogger("cadre.gateway")

_NEW = ".new"
_BUSY_SECONDS = 30.0
_CACHE_KB = 2_048
_WAL_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class SqliteDatabase:
    """A file that is this process's alone, written by one thread and read by another."""

    dialect = SQLITE
    is_shared = False

    def __init__(self, path: Path | None) -> None:
        """Opens or makes the file; None: one that is gone with the process. Raises SetupError."""
        self._folder = None
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="cadre-index-")
            path = Path(self._folder.name) / "index.db"
        self._path = path
        self._is_beside = False
        self._lock = _locked(self._path)
        _drop(_beside(path))  # of a process that was killed
        self._writer = ThreadPoolExecutor(1, "index-writer")
        self._reader = ThreadPoolExecutor(1, "index-reader")
        try:
            self._writing = self._current() or self._made_anew()
            self._reading = _connection(self._path)
        except (sqlite3.Error, OSError) as error:
            self._lock.close()
            raise SetupError(f"the index cannot be kept in {self._path}: {error}") from error

    async def lead(self) -> bool:
        """It writes: nobody else has the file."""
        return True

    async def write(self, statements: Sequence[Statement]) -> None:
        """Carries out all of them in one transaction, or none."""
        await self._in(self._writer, lambda: write(self._writing, statements))

    async def read(self, query: SqlQuery) -> list[Row]:
        """The rows of what was written."""
        return await self._in(self._reader, lambda: read(self._reading, query))

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        """The rows of several questions, at once."""
        return await self._in(self._reader, lambda: [read(self._reading, query) for query in queries])

    def beside(self) -> Self:
        """An empty file beside this one. Raises SetupError."""
        path = _beside(self._path)
        _remove(path)
        found = type(self)(path)
        found._is_beside = True
        return found

    async def adopt(self, other: Self) -> None:
        """Takes the place of what it has with what the other has, and closes that."""
        await other._let_go()
        for thread, connection in ((self._reader, self._reading), (self._writer, self._writing)):
            await self._in(thread, connection.close)
        await self._in(self._writer, lambda: self._renew(other._path))
        _drop(other._path)

    def _renew(self, path: Path) -> None:
        _remove(self._path)
        path.replace(self._path)
        self._writing, self._reading = _connection(self._path), _connection(self._path)

    async def bytes(self) -> int:
        """How much room the file takes, with what is not yet in it."""
        files = [self._path, self._path.with_name(f"{self._path.name}-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    async def writer(self) -> str:
        """Names nobody: it is this process."""
        return ""

    async def depose(self) -> None:
        """There is nobody else."""

    async def close(self) -> None:
        """Lets go of the file; one that lies beside another is gone."""
        await self._let_go()
        if self._is_beside:
            _drop(self._path)

    async def _let_go(self) -> None:
        for thread, connection in ((self._reader, self._reading), (self._writer, self._writing)):
            await self._in(thread, connection.close)
            thread.shutdown()
        self._lock.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _current(self) -> sqlite3.Connection | None:
        """The database as it was left; None for one of another version, or one that is damaged."""
        with contextlib.ExitStack() as closing:
            try:
                connection = _connection(self._path)
                closing.callback(connection.close)
                rows = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchall()
            except sqlite3.DatabaseError as error:
                if not isinstance(error, sqlite3.OperationalError):
                    log.warning("the index is unusable (%s): it is made anew from the journals", error)
                elif "no such table" not in str(error):
                    raise
                return None
            if rows != [(VERSION,)]:
                log.info("the index is of another version: reading the journals from their start")
                return None
            closing.pop_all()
            return connection

    def _made_anew(self) -> sqlite3.Connection:
        _remove(self._path)
        self._path.touch(mode=0o600)
        connection = _connection(self._path)
        make_tables(connection)
        return connection

    async def _in(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except RuntimeError:
            raise RunIndexUnavailable(f"the index in {self._path} is closed: this process stops") from None
        except sqlite3.Error as error:
            raise RunIndexUnavailable(f"the index in {self._path} fails: {error}") from error


def make_tables(connection: sqlite3.Connection) -> None:
    """Makes the tables in an empty database."""
    for sql in SQLITE.tables:
        connection.execute(sql)
    connection.execute("INSERT INTO meta (name, value) VALUES ('version', ?)", (VERSION,))


def write(connection: sqlite3.Connection, statements: Sequence[Statement]) -> None:
    """Carries out all of them in one transaction, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for sql, rows in statements:
            connection.executemany(sql, rows)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def read(connection: sqlite3.Connection, query: SqlQuery) -> list[Row]:
    """The rows that answer the question."""
    return connection.execute(query.sql, query.values).fetchall()


def _connection(path: Path) -> sqlite3.Connection:
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
    """Removes a file with its lock, which nobody but the process that has the file beside may hold."""
    _remove(path)
    _lock_of(path).unlink(missing_ok=True)


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _locked(path: Path) -> IO[str]:
    """Holds the file for this process, and its folder ready. Raises SetupError when another process has it."""
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
            f"another gateway keeps its index in {path}: give each a file of its own in CADRE_INDEX_URL"
        ) from None
    return lock
