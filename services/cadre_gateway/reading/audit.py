"""A run's journals checked: their hash chains, and whether this gateway decides them anew as they were decided."""

import asyncio

import msgspec

from cadre.adapters.nats.reading.archive import NatsArchive
from cadre.delivery.hash_chain import Broken, ChainCheck
from cadre.errors import TooLarge
from cadre.loop.redecide import Divergence, Journaled, Undecided, redecide
from cadre.protocol.messages import SCHEMA_VERSION
from cadre.protocol.topology import is_within
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem, answer_deadline

_MAX_LISTED = 500

MAX_REPLAYED_BYTES = 64 * 1024 * 1024
"""Bytes of journals that a gateway decides anew: all of them are in its memory then."""


class VerifyAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a verification; without broken links nothing of the journals was changed, lost or moved."""

    id: str
    runs: int
    entries: int
    broken: list[Broken]


async def verify(lookup: RunLookup, archive: NatsArchive, run: str, run_only: bool) -> VerifyAnswer:
    """Checks the journals of the run and of all runs below it, or of the run alone. Raises a 404 problem,
    BusUnavailable."""
    async with answer_deadline():
        tree = (await lookup.find(run)).tree
    check = ChainCheck()
    async for one in archive.entries(tree):
        await asyncio.to_thread(check.take, one.data, lambda name: _covers(name, run, run_only))
    if not run_only:
        check.check_members()
    return VerifyAnswer(id=run, runs=check.runs, entries=check.entries, broken=check.broken)


class ReplayAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a replay; without divergences this version of Cadre continues the runs as they began."""

    id: str
    schema: int
    """The version that this gateway writes."""
    runs: int
    entries: int
    decided: int
    """Entries whose decision was made anew."""
    divergences: list[Divergence]
    """The first 500."""
    undecided: list[Undecided]
    """Entries that do not tell what had arrived; the first 500."""
    omitted: int
    """Divergences that are not listed."""


async def replay(lookup: RunLookup, run: str, run_only: bool) -> ReplayAnswer:
    """Decides the run and all runs below it anew, or the run alone. Raises a 404 problem, a 413 problem for journals
    of more than MAX_REPLAYED_BYTES, a 503 problem, BusUnavailable."""
    async with answer_deadline():
        tree = (await lookup.find(run)).tree
    entries: list[tuple[str, Journaled]] = []
    try:
        async with lookup.pages_of_tree(tree, MAX_REPLAYED_BYTES) as pages:
            async for page in pages:
                entries += [(one.entry.run, Journaled(one.seq, one.entry)) for one in page]
            found = await asyncio.to_thread(redecide, _journals(entries, run, run_only))
    except TooLarge as error:
        advice = f"`cadre runs export {tree} -o FILE` and `cadre replay --file FILE` do it on your machine"
        raise Problem(413, "too-large", f"{error}: {advice}") from error
    return ReplayAnswer(
        id=run,
        schema=SCHEMA_VERSION,
        runs=found.runs,
        entries=found.entries,
        decided=found.decided,
        divergences=found.divergences[:_MAX_LISTED],
        undecided=found.undecided[:_MAX_LISTED],
        omitted=max(0, len(found.divergences) - _MAX_LISTED),
    )


def _journals(entries: list[tuple[str, Journaled]], run: str, run_only: bool) -> list[list[Journaled]]:
    """The entries by run: those of the run and of all runs below it, or of the run alone."""
    journals: dict[str, list[Journaled]] = {}
    for name, entry in entries:
        if _covers(name, run, run_only):
            journals.setdefault(name, []).append(entry)
    return list(journals.values())


def _covers(name: str, run: str, run_only: bool) -> bool:
    return name == run or (not run_only and is_within(name, run))
