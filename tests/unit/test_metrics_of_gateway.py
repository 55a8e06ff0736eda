"""Tests of what a gateway says of the runs in its list."""

from cadre.telemetry.metrics import names
from cadre_gateway.gateway import of_runs
from cadre_gateway.index.run_index import RunIndex
from unit.inline_index import index_of
from unit.loop.build import ANSWER, SimulatedRun, call, spec

HELD = spec(approvals={"add": "always"})


async def values(index: RunIndex, now: float) -> dict[str, list[tuple[float, dict[str, str]]]]:
    found: dict[str, list[tuple[float, dict[str, str]]]] = {}
    for sample in await of_runs(index, now):
        assert set(sample.attributes) <= set(sample.metric.attributes)
        found.setdefault(sample.metric.name, []).append((sample.value, dict(sample.attributes)))
    return found


async def test_a_run_that_waits_for_a_person() -> None:
    sim = SimulatedRun(HELD).begin()
    sim.say(call("add", a=1, b=2))
    found = await values(await index_of(sim.journal()), now=sim.at + 40)
    assert found[names.RUNS.name] == [(1, {names.AGENT: "boss", names.STATE: "waiting", names.WAITING_FOR: "approval"})]
    assert found[names.APPROVALS.name] == [(1, {})]
    assert found[names.APPROVALS_OLDEST.name] == [(40, {})]


async def test_runs_that_have_ended_are_not_told() -> None:
    sim = SimulatedRun().begin()
    sim.say(ANSWER)
    found = await values(await index_of(sim.journal()), now=sim.at)
    assert names.RUNS.name not in found
    assert found[names.APPROVALS.name] == found[names.APPROVALS_OLDEST.name] == [(0, {})]
