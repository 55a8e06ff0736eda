"""The examples of other frameworks, killed at every model call and every call of Cadre's tool (`make test-members`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.program_model import EFFECTS, MODEL_CALLS
from harness.program_stack import Chain, ProgramStack, program_stack

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
PYTHON = ROOT / "build" / "members-venv" / "bin" / "python"
FRAMEWORKS = ["langgraph", "pydantic_ai", "openai_agents", "smolagents"]


@pytest.fixture(scope="module", params=FRAMEWORKS)
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramStack]:
    assert PYTHON.exists(), "make test-members makes its environment"
    with program_stack(tmp_path_factory.mktemp(request.param)) as found:
        found.add("trips", f"{EXAMPLES / request.param / 'trips.py'}:main", python=str(PYTHON), apart=True)
        found.start(ROOT / "tests" / "e2e" / "programs" / "booking.py")
        yield found


@pytest.mark.timeout(600)
def test_it_runs(deployment: ProgramStack) -> None:
    points, answer = deployment.points("trips")
    assert answer.startswith("all booked")
    assert len(deployment.model.asked) == MODEL_CALLS
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"]
    assert len(points) == 2 * (MODEL_CALLS + EFFECTS)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("who", ["program", "host"])
def test_it_is_killed_at_every_call(deployment: ProgramStack, who: str) -> None:
    def kill() -> None:
        if who == "program":
            deployment.kill_forks("trips")
        else:
            deployment.kill_host("trips")

    deployment.begin()
    deployment.model.at = chain = Chain(kill)
    run = deployment.gateway.submit("trips", "Book four.")
    result = deployment.gateway.finished(run, within=600)
    assert result["state"] == "success", result["error"]
    assert len(chain.killed) == 2 * (MODEL_CALLS + EFFECTS)
    assert len(deployment.model.asked) == MODEL_CALLS, "no model call is bought twice"
    assert sorted(deployment.lines("effects")) == ["1", "2", "3", "4"], "no effect happens twice"
    assert deployment.answers(run) == MODEL_CALLS
    assert result["output"].startswith("all booked")
