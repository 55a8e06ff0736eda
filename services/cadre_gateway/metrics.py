"""What a gateway tells of the whole deployment: runs at work, people waited for, queues, dead letters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from cadre.adapters.nats.metrics import dead_letter_samples, lag_samples
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.desk import Desk
from cadre_gateway.index.run_list import Index


async def samples(desk: Desk) -> list[Sample]:
    """Raises BusUnavailable."""
    nc, topology = desk.platform.nc, desk.platform.topology
    lags, dead = await asyncio.gather(lag_samples(nc, topology), dead_letter_samples(nc, topology))
    return [*of_runs(desk.index, time.time()), *lags, *dead]


def of_runs(index: Index, now: float) -> list[Sample]:
    """Of the runs that have not ended, and of the calls that wait for a person."""
    runs = Counter((run.agent, run.state, run.waiting_for or "") for run in index.open_runs())
    # Newest first: the last one has waited longest.
    waiting, oldest = 0, now
    for call in index.pending():
        waiting, oldest = waiting + 1, call.requested_at
    return [
        *(Sample(names.RUNS, count, _named(*what)) for what, count in runs.items()),
        Sample(names.APPROVALS, waiting),
        Sample(names.APPROVALS_OLDEST, max(0.0, now - oldest)),
    ]


def _named(agent: str, state: str, waiting_for: str) -> dict[str, str]:
    found = {names.AGENT: agent, names.STATE: state}
    return found | ({names.WAITING_FOR: waiting_for} if waiting_for else {})
