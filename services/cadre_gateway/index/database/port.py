"""The port to the database of the index, and what differs between databases: tables, and how words are found."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from cadre.errors import RunIndexUnavailable
from cadre.protocol.messages import SCHEMA_VERSION
from cadre_gateway.requests.problems import awaiting

_ANSWER_SECONDS = 4.0
"""Seconds that a question waits: fewer than the request that asks it has, so that what did not answer is named."""

T = TypeVar("T")
Value = str | bytes | int | float | None
Row = tuple[Any, ...]


class Statement(NamedTuple):
    """A statement with `?` for each value, to be carried out once with each of the rows."""

    sql: str
    rows: Sequence[Sequence[Value]]


class SqlQuery(NamedTuple):
    """A question with `?` for each value."""

    sql: str
    values: Sequence[Value] = ()


class IndexReplaced(RunIndexUnavailable):
    """The tables are not those that were opened: another process has recreated or dropped them."""


GENERATION = SqlQuery("SELECT value FROM meta WHERE name = 'generation'")
"""Asks for the name that tables get when they are made or emptied; no other tables have it."""

SET_META = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


def emptying(generation: str) -> list[Statement]:
    """Return what deletes all rows and gives the tables this generation."""
    tables = [Statement(f"DELETE FROM {table}", [()]) for table in DATA_TABLES]
    return [*tables, Statement(SET_META, [("generation", generation)])]


class Database(Protocol):
    """Keeps the tables of the index. Every method raises RunIndexUnavailable."""

    dialect: Dialect
    is_shared: bool
    """True if other processes read and write the same tables."""

    async def open(self) -> None:
        """Make the tables unless they are there, and take note of their generation. Do nothing where that is done."""
        ...

    async def empty(self) -> None:
        """Delete all rows, and give the tables another generation."""
        ...

    async def write(self, statements: Sequence[Statement]) -> None:
        """Carry out all of them in one transaction, or none. Raise IndexReplaced for another generation of tables."""
        ...

    async def read(self, query: SqlQuery) -> list[Row]:
        """Return the rows that answer a question."""
        ...

    async def read_all(self, queries: Sequence[SqlQuery]) -> list[list[Row]]:
        """Return the rows of several questions, as they were at one moment."""
        ...

    def beside(self) -> Self:
        """Return a second, empty one, to be filled and adopted, or closed."""
        ...

    async def adopt(self, other: Self) -> None:
        """Replace the tables by those of the other, and close the other. Raise IndexReplaced when the other's are not
        those that it opened."""
        ...

    async def tidy(self) -> None:
        """Drop tables of other versions, and of unfinished rebuilds, that no process writes any more."""
        ...

    async def bytes(self) -> int:
        """Return the size of the tables in bytes."""
        ...

    async def close(self) -> None:
        """Release the database."""
        ...


async def answered(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. Raise RunIndexUnavailable when that takes longer than a request waits, also when
    the database does not release a query that is cancelled."""
    task = asyncio.create_task(work)
    task.add_done_callback(_retrieved)
    silence = RunIndexUnavailable(
        f"the database of the index does not answer within {_ANSWER_SECONDS:g} s; runs go on, lists come back with it"
        " (CADRE_INDEX_URL)"
    )
    try:
        with awaiting(silence):
            await asyncio.wait({task}, timeout=_ANSWER_SECONDS)
        if not task.done():
            raise silence
        return task.result()
    finally:
        task.cancel()


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Read the error of work that was given up: it is not a defect."""
    if not task.cancelled():
        task.exception()


VERSION = f"1.{SCHEMA_VERSION}"
"""Of the tables in `sqlite.sql` and `postgres.sql`; those of another version are made again from the journals. An older
gateway leaves out what it cannot read, so a new version of the messages is one of the tables, too."""

DATA_TABLES = ("run_texts", "runs", "labels", "blobs", "calls", "trees", "removals", "place")
"""Those that follow from the journals."""


class Dialect(NamedTuple):
    """The SQL that differs between SQLite and PostgreSQL."""

    tables: str
    """The statements that make the tables."""
    word_value: str
    """The form in which a statement takes a text whose words are to be found."""
    words_of: Callable[[str], str]
    """Such a text as the value to save."""
    matches: str
    """The condition that a row of `run_texts` has all words of a value."""
    match_of: Callable[[str], str | None]
    """Returns that value for the text of a search: all words, the last may be the beginning of one. None: finds
    nothing."""


_TOKEN = re.compile(r"[^\W_]+")
_MAX_TOKEN_CHARS = 500
"""PostgreSQL takes words of 2046 bytes."""
_END = "' '"
"""No word, at the end of each text: a phrase does not go on in the next one."""


def _match_in_sqlite(text: str) -> str | None:
    # An expression ends at a NUL; any other sign between words does in its place.
    words = ['"{}"'.format(word.replace('"', '""')) for word in text.replace("\0", "\N{REPLACEMENT CHARACTER}").split()]
    return " ".join(words) + "*" if words else None


def _tokens(text: str) -> list[str]:
    """Return the words of a text without accents and capitals, as SQLite's `unicode61` has them: the database's own
    parser would split text that looks like an address, and knows only the letters of its locale."""
    plain = "".join(one for one in unicodedata.normalize("NFD", text) if not unicodedata.combining(one))
    return [found[:_MAX_TOKEN_CHARS] for found in _TOKEN.findall(plain.lower())]


def _vector(text: str) -> str:
    places: dict[str, list[int]] = {}
    tokens = _tokens(text)
    for place, token in enumerate(tokens, start=1):
        places.setdefault(token, []).append(place)
    found = [f"'{token}':{','.join(map(str, at))}" for token, at in places.items()]
    return " ".join([*found, f"{_END}:{len(tokens) + 1}"])


def _match_in_postgres(text: str) -> str | None:
    phrases = [[f"'{token}'" for token in _tokens(word)] for word in text.split()]
    if phrases and phrases[-1]:
        phrases[-1][-1] += ":*"
    return " & ".join(f"({' <-> '.join(phrase)})" for phrase in phrases if phrase) or None


def _tables(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


SQLITE = Dialect(_tables("sqlite.sql"), "?", str, "run_texts MATCH ?", _match_in_sqlite)
POSTGRES = Dialect(
    _tables("postgres.sql"),
    "CAST(? AS tsvector)",
    _vector,
    "(task || answer) @@ CAST(? AS tsquery)",
    _match_in_postgres,
)
