"""Programs of the package `openai` as durable agents: killed at every call, and what a run has of them besides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.program_model import EFFECTS, MODEL_CALLS
from harness.program_stack import Chain, ProgramStack, program_stack

HERE = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramStack]:
    with program_stack(tmp_path_factory.mktemp("programs")) as found:
        for name, main in (("plain", "main"), ("streaming", "streaming"), ("parallel", "parallel")):
            found.add(name, f"{HERE / 'plain.py'}:{main}")
        found.start(HERE / "booking.py")
        yield found


@pytest.mark.parametrize("agent", ["plain", "streaming"])
def test_a_program_that_is_left_alone(deployment: ProgramStack, agent: str) -> None:
    points, answer = deployment.points(agent)
    assert answer.startswith("all booked")
    assert len(deployment.model.asked) == MODEL_CALLS
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"]
    assert len(points) == 2 * (MODEL_CALLS + EFFECTS)
    assert {one["model"] for one in deployment.model.asked} == {"theirs"}


@pytest.mark.parametrize("agent", ["plain", "streaming"])
@pytest.mark.parametrize("who", ["program", "host", "both"])
def test_one_run_that_is_killed_at_every_call(deployment: ProgramStack, agent: str, who: str) -> None:
    """The process, or what runs it, dies before and behind each model call and each effect: nothing is done twice."""

    def kill() -> None:
        if who in ("program", "both"):
            deployment.kill_program()
        if who in ("host", "both"):
            deployment.kill_host(agent)

    deployment.begin()
    deployment.model.at = chain = Chain(kill)
    run = deployment.gateway.submit(agent, "Book four.")
    answer = deployment.gateway.succeeded(run)
    assert len(chain.killed) == 2 * (MODEL_CALLS + EFFECTS)
    assert len(deployment.model.asked) == MODEL_CALLS, "no model call is bought twice"
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"], "no effect happens twice"
    assert deployment.answers(run) == MODEL_CALLS
    assert len(set(deployment.lines("pids"))) > MODEL_CALLS, "it lived again and again"
    said = deployment.gateway.run(run, full="true")["memory"][-1]
    assert said["output"] == answer
