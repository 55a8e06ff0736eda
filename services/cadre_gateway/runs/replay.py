"""A run's journals decided anew by the code of this gateway."""

import asyncio

import msgspec

from cadre.loop.redecide import Divergence, Journaled, Undecided, redecide
from cadre.protocol.messages import SCHEMA_VERSION
from cadre.protocol.topology import is_within
from cadre_gateway.requests.deadline import answer_deadline
from cadre_gateway.runs.lookup import RunLookup

_MAX_LISTED = 500


class ReplayAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a replay; without divergences this version of Cadre continues the runs as they began."""

    id: str
    schema: int
    """The version that this gateway writes."""
    runs: int
    entries: int
    decided: int
    """Entries whose decision was made anew."""
    snapshots: int
    divergences: list[Divergence]
    """The first 500."""
    undecided: list[Undecided]
    """Entries that do not tell what had arrived; the first 500."""
    omitted: int
    """Divergences that are not listed."""


async def replay(lookup: RunLookup, run: str, run_only: bool) -> ReplayAnswer:
    """Decides the run and all runs below it anew, or the run alone. Raises a 404 problem, BusUnavailable."""
    async with answer_deadline():
        summary = await lookup.find(run)
    journals: dict[str, list[Journaled]] = {}
    for one in await lookup.entries_of_tree(summary.tree):
        name = one.entry.run
        if name == run or (not run_only and is_within(name, run)):
            journals.setdefault(name, []).append(Journaled(one.seq, one.entry))
    found = await asyncio.to_thread(redecide, journals.values())
    return ReplayAnswer(
        id=run,
        schema=SCHEMA_VERSION,
        runs=found.runs,
        entries=found.entries,
        decided=found.decided,
        snapshots=found.snapshots,
        divergences=found.divergences[:_MAX_LISTED],
        undecided=found.undecided[:_MAX_LISTED],
        omitted=max(0, len(found.divergences) - _MAX_LISTED),
    )
