"""How much agents and tools have to do: what waits in their queues, runs that go on, how long runs took."""

from collections import Counter
from collections.abc import Iterable

from cadre.api.directory import AgentLoad, Load, QueueLoad
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.index.figures import open_runs, seconds_taken
from cadre_gateway.index.run_index import RunIndex

MOST_RUNS = 200
"""So many of an agent's runs that have ended, the last ones, tell how long one takes."""


async def load_of(index: RunIndex, lags: Iterable[Sample]) -> Load:
    """The load of all agents that the list has runs of, and all queues. Raises RunIndexUnavailable."""
    queued: Counter[tuple[str, str]] = Counter()
    for sample in lags:
        queued[sample.attributes[names.QUEUE_KIND], sample.attributes[names.QUEUE_NAME]] += int(sample.value)
    going: Counter[str] = Counter()
    for one in await open_runs(index):
        if one.state != "queued":
            going[one.agent] += one.runs
    took = await seconds_taken(index, MOST_RUNS)
    return Load(
        agents=[
            AgentLoad(
                name=name,
                going=going[name],
                p50_seconds=_quantile(took.get(name, []), 0.5),
                p95_seconds=_quantile(took.get(name, []), 0.95),
                counted=len(took.get(name, [])),
            )
            for name in sorted({*going, *took})
        ],
        queues=[QueueLoad(kind, name, count) for (kind, name), count in sorted(queued.items())],
    )


def _quantile(values: Iterable[float], part: float) -> float | None:
    """The least value that so large a part of them does not exceed; None where there are none."""
    found = sorted(values)
    return found[max(0, -int(-part * len(found) // 1) - 1)] if found else None
