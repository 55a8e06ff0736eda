"""A worker that is stopped, taken for dead and woken: it buys nothing that another has bought, or it is counted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import eventually
from harness.stack import Gateway, Stack
from harness.standstill import stand_still

WORKER = Path(__file__).parent / "team" / "worker.yaml"


@pytest.fixture
def alone(stack: Stack, gateway: Gateway) -> Iterator[None]:
    """The team's own worker is away, and back again afterwards."""
    stack.services["worker"].terminate()
    yield
    if not stack.services["worker"].is_running:
        stack.services["worker"].start()


def asked(stack: Stack, task: str) -> int:
    return sum(task in str(line) for line in stack.model_requests())


def test_a_worker_woken_in_the_line_for_its_model_does_not_ask_for_what_another_has_bought(
    stack: Stack, gateway: Gateway, alone: None, tmp_path: Path
) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text(WORKER.read_text() + "  model: {parallel: 1}\n")
    # The slots of `model.parallel` lie in the folder for temporary files: the other worker has its own.
    zombie = stack.add("zombie", "cadre_agent", file, TMPDIR=str(tmp_path))
    first = gateway.submit("worker", "think 3")
    eventually(lambda: asked(stack, "think 3") == 1, what="the zombie has asked")
    second = gateway.submit("worker", "rest in peace")
    gateway.wait_for(second, "model.called")
    assert zombie.process is not None
    stand_still(zombie.process.pid)
    stack.services["worker"].start()
    assert gateway.succeeded(second) == "nothing to do"
    assert gateway.succeeded(first) == "thought"
    zombie.signal(signal.SIGCONT)
    eventually(
        lambda: asked(stack, "rest in peace") > 1 or f"of {second} dropped" in zombie.log.read_text(),
        what="the zombie has gone on",
    )
    assert asked(stack, "rest in peace") == 1
    assert zombie.terminate() == 0


def test_an_answer_that_was_bought_twice_is_counted(stack: Stack, gateway: Gateway, alone: None) -> None:
    zombie = stack.add("sleeper", "cadre_agent", WORKER)
    before = model_calls(gateway)
    run = gateway.submit("worker", "think 3 over again")
    gateway.wait_for(run, "model.called")
    eventually(lambda: asked(stack, "think 3 over again") == 1, what="the zombie has asked")
    assert zombie.process is not None
    stand_still(zombie.process.pid)
    stack.services["worker"].start()
    assert gateway.succeeded(run) == "thought"
    zombie.signal(signal.SIGCONT)
    eventually(lambda: model_calls(gateway) == before + 2, what="both calls are counted")
    assert zombie.terminate() == 0


def model_calls(gateway: Gateway) -> int:
    rows = gateway.request("GET", "/v1/stats", params={"by": "agent"}).json()["rows"]
    return sum(int(row["model_calls"]) for row in rows)
