"""The index's own records next to the rows of trees: its position in the journals, and pending removals."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.erasure import FATE_SECONDS
from cadre.adapters.nats.reading.tail import reader_names
from cadre_gateway.index.database.port import Database, SqlQuery, Statement

_MAX_AGE_SECONDS = FATE_SECONDS - 24 * 3600
"""The record of an erasure expires, so an older index could show a tree that was erased since."""

_REFRESH_SECONDS = 3600.0
"""An index in which nothing changes is said to be current so often."""

PLACES = SqlQuery("SELECT reader, stream, position, saved_at FROM place")
_QUERIES = (
    PLACES,
    SqlQuery("SELECT kind, name, seq, due, body FROM removals"),
)
# Who writes a position has saved, or found saved, everything up to it: so the greatest is true.
_PLACE = (
    "INSERT INTO place (reader, stream, position, saved_at) VALUES (?, ?, ?, ?) ON CONFLICT (reader) DO UPDATE SET"
    " position = excluded.position, saved_at = excluded.saved_at WHERE place.position <= excluded.position"
)
_REMOVAL = (
    "INSERT INTO removals (kind, name, seq, due, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET"
    " seq = excluded.seq, due = excluded.due, body = excluded.body"
    " WHERE removals.seq < excluded.seq OR removals.due < excluded.due"
)
_REMOVED = "DELETE FROM removals WHERE kind = ? AND name = ? AND seq <= ?"


class PendingErasure(msgspec.Struct, array_like=True):
    """An erased tree of which something may be left in the streams."""

    tree: str
    before: int
    """Sequence of the record that it was erased: everything of the tree below it goes."""
    due: float
    """Unix seconds from which this gateway may do it: until then it is left to the gateway that erased the tree."""
    expired: bool
    blobs: list[str] = []
    """The blobs that were known to be the tree's."""


class RemovalRow(NamedTuple):
    """One removal in the table; its key is its kind and its name."""

    kind: str
    name: str
    seq: int
    due: float
    body: bytes


class Removals:
    """The removals in hand, which are few at any time. Each gateway does all of them: twice done is harmless."""

    def __init__(self) -> None:
        self.pending_erasures: dict[str, PendingErasure] = {}
        """Erased trees whose remains are still to be removed, in the order in which they were erased."""
        self.late_trees: dict[str, int] = {}
        """Trees of which something came late, with the sequence of the last of it."""
        self.postponed_blobs: dict[str, float] = {}
        """Blobs of removed trees that were too young to go, by the time from which they may."""

    def rows(self) -> set[RemovalRow]:
        """Return all of them as rows of the table."""
        return {
            *(
                RemovalRow("erasure", tree, one.before, one.due, msgspec.json.encode(one))
                for tree, one in self.pending_erasures.items()
            ),
            *(RemovalRow("late", tree, seq, 0.0, b"") for tree, seq in self.late_trees.items()),
            *(RemovalRow("blob", blob, 0, due, b"") for blob, due in self.postponed_blobs.items()),
        }

    def add(self, row: RemovalRow) -> None:
        """Take up one that another gateway has saved."""
        if row.kind == "erasure":
            self.pending_erasures.setdefault(row.name, msgspec.json.decode(row.body, type=PendingErasure))
        elif row.kind == "late":
            self.late_trees.setdefault(row.name, row.seq)
        else:
            self.postponed_blobs.setdefault(row.name, row.due)

    def clear(self) -> None:
        """Forget all of them."""
        for known in (self.pending_erasures, self.late_trees, self.postponed_blobs):
            known.clear()


class Saved(NamedTuple):
    """The contents of a database apart from the rows of trees."""

    place: Mapping[str, int] = {}
    """Up to which sequence each reader's messages are in it; a reader that is missing has none."""
    saved_at: float = 0.0
    streams: Mapping[str, str] = {}
    """Creation time of each reader's stream: a position is valid in that stream only."""
    removals: frozenset[RemovalRow] = frozenset()

    def follows_from(self, streams: Sequence[str]) -> bool:
        """Return whether it can be gone on with: it is of these streams, and not too old."""
        known = streams_of(streams)
        same = all(known.get(reader, stream) == stream for reader, stream in self.streams.items())
        return not self.place or (same and time.time() - self.saved_at <= _MAX_AGE_SECONDS)

    def behind(self, read: Mapping[str, int], now: float) -> dict[str, int]:
        """Return the positions to be saved of those up to which was read: those that are news, or all of them where
        nothing was news for long."""
        is_recent = now - self.saved_at < _REFRESH_SECONDS
        return {
            reader: position
            for reader, position in read.items()
            if position > self.place.get(reader, 0) or not is_recent
        }

    def reaches(self, wanted: Mapping[str, int]) -> bool:
        """Return whether it has everything up to these positions."""
        return all(self.place.get(reader, 0) >= position for reader, position in wanted.items())


def streams_of(streams: Sequence[str]) -> dict[str, str]:
    """Return the stream of each reader, from those of all shards."""
    return {reader: streams[shard] for shard, reader in reader_names(len(streams))}


def ends_of_readers(ends: Sequence[int]) -> list[int]:
    """Return the positions of a `Tail` that has read the journals to these sequences, one for each shard."""
    return [ends[shard] if reader.endswith("/journals") else 0 for shard, reader in reader_names(len(ends))]


async def load(database: Database) -> Saved:
    """Return what a database has. Raise RunIndexUnavailable."""
    places, removals = await database.read_all(_QUERIES)
    return Saved(
        {reader: position for reader, _, position, _ in places},
        max((saved_at for *_, saved_at in places), default=0.0),
        {reader: stream for reader, stream, *_ in places},
        frozenset(RemovalRow(*row) for row in removals),
    )


def place_statement(streams: Sequence[str], place: Mapping[str, int], now: float) -> Statement:
    """Return what saves these readers' positions."""
    known = streams_of(streams)
    return Statement(_PLACE, [(reader, known[reader], place[reader], now) for reader in sorted(place)])


def removal_statements(added: AbstractSet[RemovalRow], done: AbstractSet[RemovalRow]) -> list[Statement]:
    """Return what saves removals, and forgets those that are done."""
    found = [
        Statement(_REMOVED, sorted(row[:3] for row in done)),
        Statement(_REMOVAL, sorted(added)),
    ]
    return [one for one in found if one.rows]
