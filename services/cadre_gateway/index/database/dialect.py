"""Hold what differs between the databases of the index: their tables, and how words are found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cadre.protocol.messages import SCHEMA_VERSION

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
    """How a statement takes a text whose words are to be found."""
    words_of: Callable[[str], str]
    """Such a text as the value to save."""
    matches: str
    """The condition that a row of `run_texts` has all words of a value."""
    match_of: Callable[[str], str | None]
    """That value for what somebody searches: all words, the last may be the beginning of one. None: finds nothing."""


_TOKEN = re.compile(r"[^\W_]+")
_MAX_TOKEN_CHARS = 500
"""PostgreSQL takes words of 2046 bytes."""
_END = "' '"
"""No word, at the end of each text: a phrase does not go on in the next one."""


def _match_in_sqlite(text: str) -> str | None:
    # An expression ends at a NUL; any other sign between words does in its place.
    words = [
        '"{}"'.format(word.replace('"', '""'))
        for word in text.replace("\0", "\N{REPLACEMENT CHARACTER}").split()
    ]
    return " ".join(words) + "*" if words else None


def _tokens(text: str) -> list[str]:
    """The words of a text without accents and capitals, as SQLite's `unicode61` has them: the database's own parser
    would take apart what looks like an address, and knows only the letters of its locale."""
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
