"""Counts over all journals: they grow with each entry, survive their process, and begin with 0."""

from typing import Any

from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import ModelAnswered, RunFinished
from cadre.protocol.usage import TokenUsage, Usage
from cadre.telemetry.metrics import names
from cadre_gateway.index.usage_ledger import Totals

ANSWERED = ModelAnswered(purpose="act", step=1, attempt=2, content="", usage=TokenUsage(1, 1, cost=0.5), model="m")


def entry(*events: Any, arrived: str = "Task") -> Entry:
    return Entry(
        run="t",
        agent="boss",
        n=1,
        cause="c",
        at=1.0,
        arrived=ArrivalRecord(arrived),
        events=list(events),
    )


def values(totals: Totals, metric: names.Metric, *agents: str) -> dict[tuple[str, ...], float]:
    found = [sample for sample in totals.samples(agents) if sample.metric is metric]
    return {tuple(sample.attributes.values()): sample.value for sample in found}


def test_a_live_agent_begins_with_nothing() -> None:
    totals = Totals([])
    assert totals.samples([]) == []
    assert values(totals, names.ATTEMPTS_LOST, "boss") == {("boss",): 0}
    assert values(totals, names.RUNS_FINISHED, "boss")["boss", "error"] == 0


def test_the_cost_of_a_priced_model_begins_with_nothing_and_stays() -> None:
    totals = Totals([])
    totals.begin_cost("boss", ["m", "n"])
    totals.add(entry(ANSWERED))
    totals.begin_cost("boss", ["m", "n"])
    assert values(totals, names.COST) == {("boss", "m"): 0.5, ("boss", "n"): 0.0}
    assert values(Totals(totals.to_saved()), names.COST) == {("boss", "m"): 0.5, ("boss", "n"): 0.0}


def test_what_was_saved_goes_on() -> None:
    totals = Totals([])
    lost = entry(arrived="ModelLost")
    for one in (lost, lost, entry(ANSWERED), entry(RunFinished(state="error", usage=Usage(), steps=1))):
        totals.add(one)
    totals = Totals(totals.to_saved())
    totals.add(entry(ANSWERED))
    totals.add(lost)
    assert values(totals, names.ATTEMPTS_LOST, "boss") == {("boss",): 3}
    assert values(totals, names.COST) == {("boss", "m"): 1.0}
    assert values(totals, names.RUNS_FINISHED) == {("boss", "error"): 1}
