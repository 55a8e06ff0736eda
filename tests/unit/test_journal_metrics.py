"""Tests of what runs add to the measurements: once, no matter who delivers a record how often, and nothing of what was
said."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from cadre.errors import BusUnavailable, ModelUnavailable
from cadre.journal.entry import Entry
from cadre.journal.events import RequestedCall
from cadre.ports import Appended, ModelReply
from cadre.protocol.usage import Usage
from cadre.spec.model import ModelSpec
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.journal_metrics import PROVIDER
from cadre.telemetry.metrics.meters import Measurements, Meters
from cadre.telemetry.metrics.names import Metric
from cadre.telemetry.tracing.names import OPENAI
from unit.loop.build import ADD, ANSWER, OFFER, call, cancel, spec, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel

SPEC = spec(model=ModelSpec(name="gpt"))


class Tally(Meters):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: dict[str, list[tuple[float, Mapping[str, str]]]] = defaultdict(list)

    def record_all(self, measurements: list[Measurements]) -> None:
        for series_of, labels, values in measurements:
            for (metric, attributes), value in zip(series_of(*labels), values, strict=True):
                assert set(attributes) <= set(metric.attributes), metric.name
                self.recorded[metric.name].append((value, attributes))

    def values(self, metric: Metric) -> list[float]:
        return [value for value, _ in self.recorded[metric.name]]


def says(*calls: RequestedCall) -> ModelReply:
    return ModelReply(content="", calls=list(calls), usage=Usage(10, 2, cost=0.25), model="gpt-long")


def at_work(model: ScriptedModel, workers: int = 1) -> tuple[MemoryWorld, Tally]:
    world, tally = MemoryWorld(), Tally()
    for _ in range(workers):
        world.worker(SPEC, model, OFFER).journaling.meters = tally
    world.bus.tools["add"] = lambda a, b: a + b
    assert ADD.name == "add"
    return world, tally


async def test_a_run_in_figures() -> None:
    world, tally = at_work(ScriptedModel(says(call("add", a=1, b=2)), says(ANSWER)))
    await world.drive(task())
    assert tally.values(names.STEPS) == [1, 1]
    asked = {
        names.OPERATION: "chat",
        names.PROVIDER: "openai",
        names.MODEL: "gpt",
        names.AGENT: "boss",
        names.PURPOSE: "act",
    }
    assert [about for _, about in tally.recorded[names.OPERATION_DURATION.name]] == [asked, asked]
    assert tally.values(names.TOKEN_USAGE) == [10, 2, 10, 2]
    ((_, about),) = tally.recorded[names.TOOL_DURATION.name]
    assert about == {names.OPERATION: "execute_tool", names.TOOL: "add", names.AGENT: "boss"}
    assert tally.values(names.TOOL_CALLS) == [1]
    assert tally.values(names.INFERENCE_CALLS) == [2]
    ((_, whole),) = tally.recorded[names.AGENT_DURATION.name]
    assert names.ERROR_TYPE not in whole


async def test_what_comes_again_counts_once() -> None:
    """Every record is delivered three times, appends go wrong, and two processes are at it."""
    world, tally = at_work(ScriptedModel(says(call("add", a=1, b=2)), says(ANSWER)), workers=2)
    await world.drive(task(), task(), task())
    assert len(tally.values(names.AGENT_DURATION)) == 1
    assert tally.values(names.STEPS) == [1, 1]
    answers = [e for e in world.events("r1") if type(e).__name__ == "ModelAnswered"]
    assert len(tally.values(names.OPERATION_DURATION)) == len(answers)


async def test_what_is_not_kept_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    world, tally = at_work(ScriptedModel(says(ANSWER)))
    append = world.journal.append
    failed: list[Entry] = []

    async def failing(entry: Entry, expect: int, **more: Any) -> Appended:
        if any(type(event).__name__ == "RunFinished" for event in entry.events) and not failed:
            failed.append(entry)
            raise BusUnavailable("appending", "it went wrong")
        return await append(entry, expect, **more)

    monkeypatch.setattr(world.journal, "append", failing)
    await world.drive(task())
    assert failed
    assert len(tally.values(names.AGENT_DURATION)) == 1
    assert len(tally.values(names.OPERATION_DURATION)) == 1


async def test_a_failed_call_has_a_kind_and_no_tokens() -> None:
    busy = ModelUnavailable("not now", status=429, rate_limited=True, retry_after=1.0)
    world, tally = at_work(ScriptedModel(busy, says(ANSWER)))
    await world.drive(task())
    faults = [about.get(names.ERROR_TYPE) for _, about in tally.recorded[names.OPERATION_DURATION.name]]
    assert faults == ["429", None]
    assert tally.values(names.TOKEN_USAGE) == [10, 2]


async def test_a_cancelled_run() -> None:
    world, tally = at_work(ScriptedModel(says(call("add", a=1, b=2))))
    del world.bus.tools["add"]
    await world.drive(task())
    await world.drive(cancel())
    ((_, about),) = tally.recorded[names.AGENT_DURATION.name]
    assert about[names.ERROR_TYPE] == "cancelled"


def test_spans_and_metrics_name_one_provider() -> None:
    assert PROVIDER == OPENAI
