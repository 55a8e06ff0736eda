"""kill -9 of each service in turn in the middle of a run: it ends rightly, and no effect happens twice."""

import time
from pathlib import Path

import pytest

from harness.patience import eventually
from harness.people import done
from harness.stack import Gateway, Stack


def begun(file: Path) -> None:
    eventually(lambda: bool(done(file)), what="the tool has begun")


@pytest.mark.parametrize("victim", ["boss", "worker", "helper", "gateway", "model"])
def test_a_service_killed_while_a_tool_runs(stack: Stack, gateway: Gateway, victim: str, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("boss", f"delegate: use effect {file} 2")
    begun(file)
    stack.services[victim].kill()
    stack.services[victim].start()
    result = gateway.finished(run)
    assert (result["state"], len(done(file))) == ("success", 1)
    assert "effect is done" in result["output"]
    assert "hello" in result["output"]


@pytest.mark.parametrize(
    ("tool", "said", "times"),
    [("effect", "outcome unknown", 1), ("keyed", "keyed is done", 2), ("look", "look is done", 2)],
)
def test_the_executor_killed_in_the_middle_of_a_tool(
    stack: Stack, gateway: Gateway, tool: str, said: str, times: int, tmp_path: Path
) -> None:
    """A tool with effects is not run again, and the run reads so; an idempotent one runs with the same id."""
    file = tmp_path / "marks"
    run = gateway.submit("boss", f"delegate: use {tool} {file} 1.5")
    begun(file)
    stack.services["tools"].kill()
    stack.services["tools"].start()
    assert said in gateway.succeeded(run)
    assert len(done(file)) == times
    assert len(set(done(file))) == 1


def test_the_nats_server_killed_in_the_middle(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("boss", f"delegate: use effect {file} 2")
    begun(file)
    stack.nats.kill()
    stack.nats.start()
    result = gateway.finished(run)
    assert (result["state"], len(done(file))) == ("success", 1)


def test_an_agent_killed_while_its_model_answers(stack: Stack, gateway: Gateway) -> None:
    """The model call is taken over by the next process as a second attempt; its answer is bought once."""
    run = gateway.submit("worker", "think 3")
    gateway.wait_for(run, "model.called", attempt=1)
    stack.services["worker"].kill()
    killed = time.monotonic()
    stack.services["worker"].start()
    assert gateway.succeeded(run) == "thought"
    assert time.monotonic() - killed < 60
    names = [(name, data.get("event", {}).get("attempt")) for name, data in gateway.events(run)]
    assert ("model.called", 2) in names
    assert [name for name, _ in names].count("model.answered") == 1


def test_a_rate_limit_is_a_wait_that_survives_a_kill(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("worker", "limited 3")
    deferred = gateway.wait_for(run, "model.deferred")
    assert deferred["event"]["rate_limited"]
    assert gateway.run(run)["state"] == "waiting"
    stack.services["worker"].kill()
    stack.services["worker"].start()
    result = gateway.finished(run)
    assert result["state"] == "success"
    assert result["ended_at"] >= deferred["event"]["until"]


def test_a_second_replica_goes_on_at_once(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    """No one restarts the killed one: anyone who serves the same agent takes its runs over."""
    stack.agent(Path(__file__).parent / "team" / "worker.yaml", name="worker-2")
    file = tmp_path / "marks"
    runs = [gateway.submit("boss", f"delegate: use effect {file} 0.5") for _ in range(6)]
    begun(file)
    stack.services["worker"].kill()
    results = [gateway.finished(run) for run in runs]
    assert {result["state"] for result in results} == {"success"}
    assert len(done(file)) == len(set(done(file))) == 6
    stack.services["worker"].start()
    assert stack.services["worker-2"].terminate() == 0


def test_services_stop_cleanly_while_nats_is_down(stack: Stack, gateway: Gateway) -> None:
    names = ("boss", "tools", "gateway")
    stack.nats.kill()
    try:
        for name in names:
            assert stack.services[name].terminate() in (0, 1)
            assert "a defect" not in stack.services[name].log.read_text()
    finally:
        stack.nats.start()
        stack.start_all()
