"""The hash chains of a run's journals, checked entry by entry as the stream holds them."""

import msgspec

from cadre.adapters.nats.archive import NatsArchive
from cadre.delivery.hash_chain import Broken, RunLinks, check_chain
from cadre.protocol.topology import is_within
from cadre_gateway.requests.deadline import answer_deadline
from cadre_gateway.runs.lookup import RunLookup


class VerifyAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a verification; without broken links nothing of the journals was changed, lost or moved."""

    id: str
    runs: int
    entries: int
    sealed: int
    """Entries that have a hash; those of earlier schema versions have none."""
    broken: list[Broken]


async def verify(lookup: RunLookup, archive: NatsArchive, run: str, run_only: bool) -> VerifyAnswer:
    """Checks the journals of the run and of all runs below it, or of the run alone. Raises a 404 problem,
    BusUnavailable."""
    async with answer_deadline():
        summary = await lookup.find(run)
    journals: dict[str, list[bytes]] = {}
    async for one in archive.entries(summary.tree):
        name = msgspec.json.decode(one.data, type=RunLinks).run
        if name == run or (not run_only and is_within(name, run)):
            journals.setdefault(name, []).append(one.data)
    chains = [check_chain(journal) for journal in journals.values()]
    return VerifyAnswer(
        id=run,
        runs=len(chains),
        entries=sum(chain.entries for chain in chains),
        sealed=sum(chain.sealed for chain in chains),
        broken=[link for chain in chains for link in chain.broken],
    )
