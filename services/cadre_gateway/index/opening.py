"""The index as a process finds it when it starts."""

from __future__ import annotations

import logging
import time

from cadre.adapters.nats.erasure import FATE_SECONDS
from cadre.errors import RunIndexUnavailable
from cadre_gateway.index.database.port import Database, Statement
from cadre_gateway.index.database.schema import DATA_TABLES
from cadre_gateway.index.removals import Removals
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.saved_place import PLACE, SavedPlace, are_of_one, load_place

log = logging.getLogger("cadre.gateway")

_MAX_AGE_SECONDS = FATE_SECONDS - 24 * 3600
"""What was erased since an older index was saved may not be on record any more."""


def unopened_index(database: Database, streams: list[str]) -> RunIndex:
    """An index of which nothing is known yet: not what was saved, nor whether there is its database."""
    return RunIndex(database, SavedPlace(streams=streams, positions=[], saved_at=0.0).at_the_start())


async def open_index(index: RunIndex, database: Database, streams: list[str]) -> None:
    """Has it go on from what was saved, or from nothing, if that is of other streams or too old. Raises
    RunIndexUnavailable, which is its `failure` then."""
    try:
        index.go_on(*await _saved(database, streams))
    except RunIndexUnavailable as error:
        index.failure = error
        raise


async def _saved(database: Database, streams: list[str]) -> tuple[SavedPlace, Removals, bool]:
    """What was saved, and whether this process is the one that writes. Raises RunIndexUnavailable."""
    leads = await database.lead()
    place, removals = await load_place(database)
    if place is not None and (
        not are_of_one(place.streams, streams) or time.time() - place.saved_at > _MAX_AGE_SECONDS
    ):
        if not leads:
            raise RunIndexUnavailable(
                "the index is of other streams, or too old, and another gateway writes it: it makes it anew, or it is"
                " another deployment's (give each its CADRE_INDEX_SCHEMA)"
            )
        log.info("the index is of other streams, or too old: reading the journals from their start")
        tables = [Statement(f"DELETE FROM {table}", [()]) for table in DATA_TABLES]
        await database.write([*tables, Statement("DELETE FROM meta WHERE name = ?", [(PLACE,)])])
        place, removals = None, Removals()
    if place is not None:
        place = place.grown_to(streams)
        log.info("the index has the journals up to %s", place.positions)
    else:
        place = SavedPlace(streams=streams, positions=[], saved_at=time.time()).at_the_start()
    return place, removals, leads
