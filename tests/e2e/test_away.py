"""Agents and tools without a live replica are away, not unknown: runs and calls wait in queues up to the limit."""

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.protocol.nats_users import Role
from harness.command import Commands, only_line
from harness.patience import eventually
from harness.people import assert_sound, done, events_of
from harness.secured_stack import SecuredStack
from harness.stack import Gateway, Service, Stack

TEAM = Path(__file__).parent / "away"
EACH = 10


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    """The whole team at work but for the sleeper, which is at rest."""
    settings = {"CADRE_MEMORY_DIRECTORY": str(stack.folder / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
    stack.add("memory", "cadre_memory", start=False, **settings)
    provisioned = Commands(stack.folder, stack.environment)("provision", "--at-rest", TEAM / "sleeper.yaml")
    assert provisioned.returncode == 0, provisioned.stderr
    for name in ("lead", "worker", "hasty", "lacking"):
        stack.agent(TEAM / f"{name}.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    return stack.open_gateway(5)


@pytest.fixture
def worker(stack: Stack) -> Service:
    return stack.services["worker"]


@pytest.fixture
def tools(stack: Stack) -> Service:
    return stack.services["tools"]


def listed(gateway: Gateway, kind: str, name: str) -> dict[str, Any] | None:
    found = gateway.request("GET", f"/v1/{kind}").json()[kind]
    return next((one for one in found if one["name"] == name), None)


def is_away(gateway: Gateway, kind: str, name: str) -> bool:
    one = listed(gateway, kind, name)
    return one is not None and one["away_since"] is not None and not one["replicas"]


def is_back(gateway: Gateway, kind: str, name: str) -> bool:
    one = listed(gateway, kind, name)
    return one is not None and one["away_since"] is None and bool(one["replicas"])


def calls_of(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The calls of the run's steps, by what they call."""
    return {call["name"]: call for step in run["memory"] for call in step.get("calls", ())}


LISTED = {
    "lead": ("agents", "lead"),
    "worker": ("agents", "worker"),
    "tools": ("tools", "effect"),
    "memory": ("tools", "remember"),
}
"""The agents and tools of each service, as the API lists them."""


@pytest.mark.parametrize("victim", [*LISTED])
def test_runs_that_begin_while_the_only_replica_is_away_are_whole(
    stack: Stack, gateway: Gateway, cadre: Commands, victim: str, tmp_path: Path
) -> None:
    """Some begin before anything has noticed, the others while it is known to be away."""
    file, (kind, name) = tmp_path / "marks", LISTED[victim]
    stack.services[victim].kill()
    runs = [gateway.submit("lead", f"mark {file} 0") for _ in range(EACH // 2)]
    eventually(partial(is_away, gateway, kind, name), what=f"{name} is away")
    runs += [gateway.submit("lead", f"mark {file} 0") for _ in range(EACH - len(runs))]
    waits = {"lead": "agent lead", "worker": "agent worker", "tools": "tool effect", "memory": None}[victim]
    if waits is not None:
        eventually(lambda: all(gateway.run(run)["waiting_for"] == waits for run in runs), what="all wait for it")
    stack.services[victim].start()
    for run in runs:
        assert gateway.succeeded(run).count("effect is done") == 2
        assert not events_of(gateway, run, "call.refused")
        assert not events_of(gateway, run, "call.timed_out")
        assert_sound(cadre, run)
    marks = done(file)
    assert len(marks) == len(set(marks)) == 2 * EACH
    eventually(partial(is_back, gateway, kind, name), what=f"{name} is back")


def test_a_call_that_was_not_begun_ends_behind_its_bound_and_is_never_made(
    gateway: Gateway, cadre: Commands, tools: Service, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    tools.kill()
    unnoticed = gateway.submit("hasty", f"mark {file} 0")
    eventually(partial(is_away, gateway, "tools", "effect"), what="the tool is away")
    noticed = gateway.submit("hasty", f"mark {file} 0")
    for run in (unnoticed, noticed):
        result = gateway.finished(run)
        assert result["state"] == "success", result["error"]
        assert calls_of(result)["effect"]["error"]["type"] == "Away"
        [event] = events_of(gateway, run, "call.timed_out")
        assert (event["code"], event["seconds"] >= 2) == ("away", True)
    tools.start()
    eventually(partial(is_idle, gateway, "tool", "effect"), what="its queue is empty")
    assert not file.exists()
    run = gateway.submit("hasty", f"mark {file} 0")
    assert "effect is done" in gateway.succeeded(run)
    assert_sound(cadre, unnoticed)


def is_idle(gateway: Gateway, kind: str, name: str) -> bool:
    queues = gateway.request("GET", "/v1/load").json()["queues"]
    return not any(one["messages"] for one in queues if (one["kind"], one["name"]) == (kind, name))


def test_a_call_that_was_begun_ends_with_an_unknown_outcome(gateway: Gateway, tools: Service, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("hasty", f"mark {file} 600")
    eventually(lambda: bool(done(file)), what="the tool has begun")
    tools.kill()
    result = gateway.finished(run)
    assert calls_of(result)["effect"]["error"]["type"] == "Interrupted"
    [event] = events_of(gateway, run, "call.timed_out")
    assert event["code"] == "left"
    tools.start()
    eventually(partial(is_idle, gateway, "tool", "effect"), what="its queue is empty")
    assert len(done(file)) == 1


def test_a_member_that_is_away_is_bounded_and_one_at_rest_is_not(
    stack: Stack, gateway: Gateway, worker: Service, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    worker.kill()
    run = gateway.submit("hasty", f"team mark {file} 0")
    gateway.wait_for(run, "call.timed_out")
    waits = gateway.run(run)
    assert (waits["state"], waits["waiting_for"]) == ("running", "agent sleeper")
    sleeper = stack.agent(TEAM / "sleeper.yaml")
    result = gateway.finished(run)
    assert result["state"] == "success", result["error"]
    calls = calls_of(result)
    assert calls["worker"]["error"]["type"] == "Away"
    assert "awake" in calls["sleeper"]["observation"]
    assert sleeper.terminate() == 0
    worker.start()
    [child] = [one for one in gateway.run(run)["children"] if one["agent"] == "worker"]
    assert gateway.finished(child["id"])["state"] == "cancelled"
    assert not file.exists()


def test_a_run_is_whole_though_its_agent_restarts_while_its_tool_is_away(
    stack: Stack, gateway: Gateway, tools: Service, tmp_path: Path
) -> None:
    """The bound is nothing that a process keeps."""
    file = tmp_path / "marks"
    tools.kill()
    run = gateway.submit("hasty", f"mark {file} 0")
    gateway.wait_for(run, "tool.called")
    stack.services["hasty"].kill()
    eventually(partial(is_away, gateway, "tools", "effect"), what="the tool is away")
    stack.services["hasty"].start()
    [event] = [gateway.wait_for(run, "call.timed_out")["event"]]
    assert event["code"] == "away"
    assert gateway.finished(run)["state"] == "success"
    tools.start()


def test_what_was_never_there_is_said_at_readiness_by_the_doctor_and_to_the_model(
    stack: Stack, gateway: Gateway, cadre: Commands, tmp_path: Path
) -> None:
    ready = httpx2.get(f"{stack.services['lacking'].url}/readyz").json()
    assert "never_there" in ready["lacks"]
    agent = listed(gateway, "agents", "lacking")
    assert agent is not None
    assert agent["missing"] == ["never_there"]
    assert any("never_there" in line for line in cadre("doctor").stdout.splitlines())
    run = gateway.submit("lacking", "Do it.")
    gateway.succeeded(run)
    [asked, *_] = gateway.request("GET", f"/v1/runs/{run}/steps/1/request").json()["body"]["messages"]
    assert "'never_there'" in asked["content"]


def queue_of(gateway: Gateway, kind: str, name: str) -> dict[str, Any] | None:
    queues = gateway.request("GET", "/v1/queues").json()["queues"]
    return next((one for one in queues if (one["kind"], one["name"]) == (kind, name)), None)


def is_retired(gateway: Gateway, kind: str, name: str) -> bool:
    return bool((queue_of(gateway, kind, name) or {}).get("state") == "retired")


def is_empty(gateway: Gateway, kind: str, name: str) -> bool:
    return bool((queue_of(gateway, kind, name) or {}).get("waiting") == 0)


def swept(cadre: Commands, *arguments: str) -> dict[str, bool]:
    done = cadre("sweep", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return {one["name"]: one["removed"] for one in json.loads(done.stdout)}


def test_a_retired_queue_is_swept_once_it_is_empty_and_what_it_delivers_again_has_no_effect(
    stack: Stack, gateway: Gateway, cadre: Commands, worker: Service, tools: Service, tmp_path: Path
) -> None:
    def retire() -> None:
        for service, plural, kind, name in (
            (worker, "agents", "agent", "worker"),
            (tools, "tools", "tool", "effect"),
        ):
            assert service.terminate() == 0
            eventually(partial(is_away, gateway, plural, name), what=f"{name} is away")
            assert swept(cadre, name) == {name: False}, "it may come back"
            assert cadre("retire", name, "--kind", kind).returncode == 0
            eventually(partial(is_retired, gateway, kind, name), what=f"{name} is retired")

    file = tmp_path / "marks"
    first = gateway.submit("worker", f"mark {file} 0")
    gateway.succeeded(first)
    before = gateway.run(first)
    served = gateway.request("DELETE", "/v1/queues/agent/worker")
    assert (served.status_code, served.json()["code"]) == (409, "queue-in-use")
    tools.kill()
    second = gateway.submit("worker", f"mark {file} 0")
    eventually(lambda: gateway.run(second)["waiting_for"] == "tool effect", what="it waits for the tool")
    tools.start()
    gateway.succeeded(second)

    retire()
    assert swept(cadre, "--dry-run") == {"effect": True, "worker": True}
    assert queue_of(gateway, "agent", "worker") is not None
    assert swept(cadre) == {"effect": True, "worker": True}
    assert (queue_of(gateway, "agent", "worker"), queue_of(gateway, "tool", "effect")) == (None, None)
    only_line(cadre("sweep", "worker"), 4)
    gone = gateway.request("DELETE", "/v1/queues/agent/worker")
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-queue")

    worker.start()
    tools.start()
    eventually(partial(is_back, gateway, "agents", "worker"), what="who starts again is known again")
    eventually(partial(is_back, gateway, "tools", "effect"), what="the tool is known again")
    gateway.succeeded(gateway.submit("worker", f"mark {file} 0"))
    for kind, name in (("agent", "worker"), ("tool", "effect")):
        eventually(partial(is_empty, gateway, kind, name), what=f"{name} has handled all of it")
    assert gateway.run(first) == before
    assert len(done(file)) == len(set(done(file))) == 3


def test_a_queue_with_work_stays_although_its_agent_is_retired(
    gateway: Gateway, cadre: Commands, worker: Service, tools: Service, tmp_path: Path
) -> None:
    assert tools.is_running
    assert worker.terminate() == 0
    eventually(partial(is_away, gateway, "agents", "worker"), what="the worker is away")
    run = gateway.submit("worker", f"mark {tmp_path / 'marks'} 0")
    assert cadre("retire", "worker", "--kind", "agent").returncode == 0
    eventually(lambda: (queue_of(gateway, "agent", "worker") or {})["state"] == "retired", what="it is retired")
    assert swept(cadre, "--forgotten") == {"worker": False}
    kept = gateway.request("DELETE", "/v1/queues/agent/worker")
    assert (kept.status_code, kept.json()["code"]) == (409, "queue-in-use")
    worker.start()
    gateway.succeeded(run)


def test_what_is_retired_is_unknown_once_it_is_gone(
    stack: Stack, gateway: Gateway, cadre: Commands, worker: Service, tools: Service
) -> None:
    assert worker.terminate() == 0
    tools.signal(signal.SIGKILL)
    eventually(partial(is_away, gateway, "agents", "worker"), what="who left in good order is away at once")
    eventually(partial(is_away, gateway, "tools", "effect"), what="the tool is away")
    lead = listed(gateway, "agents", "lead")
    assert lead is not None
    assert (lead["away"], lead["missing"]) == (["effect", "worker"], [])
    [shown] = [line for line in cadre("ps").stdout.splitlines() if line.split()[1] == "worker"]
    assert "away since" in shown
    assert "cadre retire effect" in cadre("doctor").stdout

    assert cadre("retire", "effect").returncode == 0
    assert cadre("retire", "worker", "--kind", "agent").returncode == 0
    eventually(lambda: listed(gateway, "tools", "effect") is None, what="the tool is unknown")
    eventually(lambda: listed(gateway, "agents", "worker") is None, what="the agent is unknown")
    refused = gateway.request("POST", "/v1/runs", json={"agent": "worker", "task": "x"})
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-agent")
    gone = gateway.request("DELETE", "/v1/tools/effect")
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-tool")
    assert cadre("retire", "effect").returncode == 4

    worker.start()
    eventually(partial(is_back, gateway, "agents", "worker"), what="who starts again is known again")


def test_services_with_users_of_their_own_may_do_all_that_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "marks"
    roles = [
        Role(kind="operator"),
        Role(kind="gateway"),
        Role(kind="agent", name="hasty", calls=("effect",)),
        Role(kind="agent", name="worker", calls=("effect", "remember")),
        Role(kind="tools", name="tools", tools=("effect",)),
    ]
    with SecuredStack(tmp_path, roles) as stack:
        stack.model(TEAM / "script.yaml")
        for name in ("hasty", "worker"):
            stack.add_as(f"agent-{name}", "cadre_agent", TEAM / f"{name}.yaml")
        tools = stack.add_as("tools-tools", "cadre_tools", TEAM / "tools.py")
        gateway = Gateway(stack.add_as("gateway", "cadre_gateway"))
        stack.start_all()
        eventually(partial(is_back, gateway, "tools", "effect"), what="the tool is there")
        tools.kill()
        stack.services["agent-worker"].kill()
        called = gateway.submit("hasty", f"mark {file} 0")
        asked = gateway.submit("hasty", f"team mark {file} 0")
        for run in (called, asked):
            assert gateway.wait_for(run, "call.timed_out")["event"]["code"] == "away"
        assert gateway.finished(called)["state"] == "success"
        for kind, name in (("agents", "worker"), ("tools", "effect")):
            assert gateway.request("DELETE", f"/v1/{kind}/{name}").status_code == 204
            eventually(partial(is_unknown, gateway, kind, name), what=f"{name} is unknown")
        assert stack.refusals() == []


def is_unknown(gateway: Gateway, kind: str, name: str) -> bool:
    return listed(gateway, kind, name) is None
