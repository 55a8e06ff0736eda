"""The kind that docs/architecture.md shows: its events one by one, under the simulation's faults, in a real service."""

from __future__ import annotations

from pathlib import Path

import pytest
import reviewed_kind  # type: ignore[import-not-found]
from reviewed_kind import Drafted, ReviewedSpec, ReviewedState

from cadre.spec.kinds import sections
from harness.stack import Stack
from simulation.world import play
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, replay_of, result, spec

SEEDS = range(30)

SCRIPT = """
rules:
  - name: again
    match: {last: Is this right}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: wind}}]}
  - name: draft
    match: {has_tool: true}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: sun}}]}
  - name: look
    match: {}
    reply: {tool_calls: [{name: look, arguments: {}}]}
"""

TOOLS = '''
from cadre import tool


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "a clear sky"
'''


@pytest.mark.parametrize("times", [0, 1, 2])
def test_an_answer_is_read_again_before_it_counts(times: int) -> None:
    sim = SimulatedRun(spec(kind="reviewed", **sections(ReviewedSpec(times=times)))).begin()
    assert kinds(sim.say(call("look", at="sky"))) == ["ModelAnswered", "ToolCalled"]
    sim.arrive(result(sim.id(), 3))
    for _ in range(times):
        assert kinds(sim.say(ANSWER)) == ["ModelAnswered", "Drafted", "StepFinished", "ModelCalled"]
    assert kinds(sim.say(ANSWER)) == ["ModelAnswered", "StepFinished", "RunFinished"]
    assert isinstance(sim.run.own, ReviewedState)
    assert len(sim.run.own.drafts) == times
    assert sim.run.result is not None
    assert sim.run.result.state == "success"
    assert replay_of(sim).divergences == []


def test_every_promise_of_the_simulation_holds() -> None:
    failures, drafts = [], 0
    for seed in SEEDS:
        outcome, world = play(seed)
        failures += [f"seed {seed}: {outcome.failure}"] if outcome.failure is not None else []
        drafts += sum(
            isinstance(event, Drafted) for chronicle in world.history.runs.values() for event in chronicle.events
        )
    assert failures == []
    assert drafts > 10


def test_a_real_service_runs_its_agent(tmp_path: Path) -> None:
    shown = Path(reviewed_kind.__file__).with_name("forecaster.yaml")
    (tmp_path / "forecaster.yaml").write_text(shown.read_text())
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    with Stack(tmp_path) as stack:
        stack.model(tmp_path / "script.yaml")
        stack.agent(tmp_path / "forecaster.yaml", start=False)
        stack.tools(tmp_path / "tools.py", start=False)
        gateway = stack.open_gateway()
        run = gateway.submit("forecaster", "What will the weather be?")
        found = gateway.finished(run)
        events = dict(gateway.events(run))
    assert (found["state"], found["output"]) == ("success", "wind")
    assert events["reviewed.drafted"]["event"]["answer"] == "sun"
