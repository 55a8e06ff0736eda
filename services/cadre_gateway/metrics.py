"""A gateway's metrics of the whole deployment: its runs, the calls that wait for people, queues, dead letters."""

import asyncio
from collections import Counter

from cadre.adapters.nats.metrics import dead_letter_samples, lag_samples
from cadre.service.frame import Platform
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.totals import Totals


async def samples(platform: Platform, index: RunIndex, totals: Totals) -> list[Sample]:
    """All samples of a gateway as they are now. Raises BusUnavailable."""
    agents = {one.agent.name for one in platform.registry.presences() if one.agent is not None}
    nc, topology = platform.nc, platform.topology
    lags, dead = await asyncio.gather(lag_samples(nc, topology), dead_letter_samples(nc, topology))
    return [*of_runs(index, platform.clock.now()), *totals.samples(agents), *lags, *dead]


def of_runs(index: RunIndex, now: float) -> list[Sample]:
    """Samples of the runs that have not ended, and of the calls that wait for a person."""
    runs = Counter((run.agent, run.state, run.waiting_for or "") for run in index.open_runs())
    # Newest first: the last one has waited longest.
    waiting, oldest = 0, now
    for call in index.pending():
        waiting, oldest = waiting + 1, call.requested_at
    return [
        *(Sample(names.RUNS, count, _attributes(*what)) for what, count in runs.items()),
        Sample(names.APPROVALS, waiting),
        Sample(names.APPROVALS_OLDEST, max(0.0, now - oldest)),
    ]


def _attributes(agent: str, state: str, waiting_for: str) -> dict[str, str]:
    found = {names.AGENT: agent, names.STATE: state}
    return found | ({names.WAITING_FOR: waiting_for} if waiting_for else {})
