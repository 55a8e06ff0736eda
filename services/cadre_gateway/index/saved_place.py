"""Up to where the journals are in an index, as it is saved with what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from cadre.adapters.nats.reading.tail import READERS_PER_SHARD
from cadre_gateway.index.database.port import Database, SqlQuery, Value
from cadre_gateway.index.removals import Removals

PLACE, REMOVALS = "place", "removals"
SAVE_META = (
    "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


class SavedPlace(msgspec.Struct, kw_only=True):
    """Up to where the journals are in the index."""

    streams: list[str]
    """When each shard's stream was created: positions in another stream mean nothing. Shards are added at the end."""
    positions: list[int]
    """Up to which sequences: see `Tail.positions`. Those that it lacks are 0."""
    saved_at: float

    def at_the_start(self) -> SavedPlace:
        """The place in the same streams before anything was read."""
        return msgspec.structs.replace(self, positions=[0] * (READERS_PER_SHARD * len(self.streams)))

    def grown_to(self, streams: Sequence[str]) -> SavedPlace:
        """The place when there are also these streams, if there are more: nothing of the new ones is read."""
        return (
            self
            if len(streams) <= len(self.streams)
            else msgspec.structs.replace(self, streams=list(streams))
        )


async def load_place(database: Database) -> tuple[SavedPlace | None, Removals]:
    """Up to where the journals are in the database, None for nothing, and what is to be removed. Raises
    RunIndexUnavailable."""
    saved: dict[str, str] = dict(await database.read(SqlQuery("SELECT name, value FROM meta")))
    if PLACE not in saved:
        return None, Removals()
    return (
        msgspec.json.decode(saved[PLACE], type=SavedPlace),
        msgspec.json.decode(saved[REMOVALS], type=Removals),
    )


def rows_of(place: SavedPlace, removals: bytes) -> list[tuple[Value, ...]]:
    """What SAVE_META saves; `removals` are encoded."""
    return [(PLACE, msgspec.json.encode(place).decode()), (REMOVALS, removals.decode())]


def reaches(positions: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether everything up to the wanted sequences is in what was read up to these."""
    return all(mine >= theirs for mine, theirs in zip_longest(positions, wanted, fillvalue=0))


def are_of_one(streams: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether both are streams of one deployment, which may have grown between them."""
    return all(mine == theirs for mine, theirs in zip(streams, others, strict=False))


def ends_of_readers(ends: Sequence[int]) -> list[int]:
    """Return up to where a `Tail` has the journals once it has read them to these sequences, one for each shard."""
    return [place for end in ends for place in (end, 0, 0)]
