"""A gateway's metrics of the whole deployment: its runs, the calls that wait for people, queues, dead letters."""

import asyncio
import logging
from collections.abc import Awaitable

from cadre.adapters.nats.metrics import dead_letter_samples, lag_samples, store_samples
from cadre.errors import RetryableError
from cadre.service.metrics import READ_WITHIN
from cadre.service.platform import Platform
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.index.figures import open_runs, waiting_calls
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.totals import Totals

log = logging.getLogger("cadre.gateway")

_PART_SECONDS = READ_WITHIN - 0.5


async def samples(platform: Platform, index: RunIndex, totals: Totals) -> list[Sample]:
    """All samples of a gateway as they are now, but those that nobody answers in time."""
    agents = set[str]()
    for one in platform.registry.reachable():
        if one.agent is not None:
            agents.add(one.agent.name)
            totals.begin_cost(one.agent.name, one.priced_models)
    nc, topology = platform.nc, platform.topology
    # The last figures of a process are asked for when it has let go of its index; half an index has wrong ones.
    is_told = index.whole.is_set() and not index.is_closed
    parts = [lag_samples(nc, topology), dead_letter_samples(nc, topology), store_samples(nc, topology)]
    if is_told:
        parts.append(of_runs(index, platform.clock.now()))
    found = await asyncio.gather(*map(_as_far_as_told, parts))
    return [*totals.samples(agents), *(sample for part in found for sample in part)]


async def _as_far_as_told(part: Awaitable[list[Sample]]) -> list[Sample]:
    try:
        async with asyncio.timeout(_PART_SECONDS):
            return await part
    except (RetryableError, TimeoutError) as error:
        log.warning("some metrics cannot be read: %s", str(error) or "no answer in time")
        return []


async def of_runs(index: RunIndex, now: float) -> list[Sample]:
    """Samples of the runs that have not ended, and of the calls that wait for a person. Raises RunIndexUnavailable."""
    waiting = await waiting_calls(index)
    return [
        *(
            Sample(names.RUNS, one.runs, _attributes(one.agent, one.state, one.waiting_for))
            for one in await open_runs(index)
        ),
        Sample(names.APPROVALS, waiting.calls),
        Sample(names.APPROVALS_OLDEST, max(0.0, now - waiting.oldest) if waiting.oldest is not None else 0.0),
    ]


def _attributes(agent: str, state: str, waiting_for: str | None) -> dict[str, str]:
    found = {names.AGENT: agent, names.STATE: state}
    return found | ({names.WAITING_FOR: waiting_for} if waiting_for else {})
