"""Counts over all journals that only grow and outlive every process: what Prometheus takes as counters. Pure.

A counter of one process is lost with it. In a crash loop each process counts its one lost call, is read with 1, and
nobody sees anything grow.
"""

from collections.abc import Iterable
from typing import NamedTuple, get_args

from cadre.journal import events as ev
from cadre.journal.arrivals import ModelLost
from cadre.journal.entry import Entry
from cadre.protocol.messages import RunState
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample

_METRICS = {metric.name: metric for metric in (names.RUNS_FINISHED, names.COST, names.ATTEMPTS_LOST)}


class TotalKey(NamedTuple):
    """What one count is of."""

    metric: str
    """Its name in `cadre.telemetry.metrics.names`."""
    agent: str
    label: str = ""
    """How runs ended, or the model."""


class Totals:
    """The counts since the first run."""

    def __init__(self, saved: Iterable[tuple[TotalKey, float]]) -> None:
        self._counts = dict(saved)

    def to_saved(self) -> list[tuple[TotalKey, float]]:
        """All of it, for the constructor."""
        return list(self._counts.items())

    def add(self, entry: Entry) -> None:
        """Counts what the entry tells; each entry is to be counted once."""
        if entry.arrived is not None and entry.arrived.type == ModelLost.__name__:
            self._count(TotalKey(names.ATTEMPTS_LOST.name, entry.agent), 1)
        for event in entry.events:
            match event:
                case ev.RunFinished(state=state):
                    self._count(TotalKey(names.RUNS_FINISHED.name, entry.agent, state), 1)
                case ev.ModelAnswered(usage=usage) | ev.RecordIgnored(usage=usage) if usage.cost:
                    self._count(TotalKey(names.COST.name, entry.agent, event.model), usage.cost)

    def begin_cost(self, agent: str, models: Iterable[str]) -> None:
        """Has the cost of models whose price is known begin with 0; it stands there when nothing serves the agent any
        more, too: what is sent to it next starts a replica, and the first cost comes at once."""
        for model in models:
            self._counts.setdefault(TotalKey(names.COST.name, agent, model), 0.0)

    def samples(self, agents: Iterable[str]) -> list[Sample]:
        """The counts as they are; those of live agents begin with 0, so that their first increase is one."""
        counts = {key: 0.0 for agent in agents for key in _first_keys(agent)} | self._counts
        return [Sample(_METRICS[key.metric], count, _attributes(key)) for key, count in counts.items()]

    def _count(self, key: TotalKey, value: float) -> None:
        self._counts[key] = self._counts.get(key, 0.0) + value


def _first_keys(agent: str) -> list[TotalKey]:
    ends = [TotalKey(names.RUNS_FINISHED.name, agent, state) for state in get_args(RunState)]
    return [*ends, TotalKey(names.ATTEMPTS_LOST.name, agent)]


def _attributes(key: TotalKey) -> dict[str, str]:
    label = {names.RUNS_FINISHED.name: names.STATE, names.COST.name: names.MODEL}.get(key.metric)
    return {names.AGENT: key.agent} | ({label: key.label} if label else {})
