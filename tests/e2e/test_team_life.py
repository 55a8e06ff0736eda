"""Changes of a team at work: agents come and go, stop gracefully, are cancelled, fail to read."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode
from cadre.protocol.messages import Report
from cadre.telemetry.tracing.ids import trace_id
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "team"


def names_of_agents(gateway: Gateway) -> dict[str, int]:
    agents = gateway.request("GET", "/v1/agents").json()["agents"]
    return {agent["name"]: len(agent["replicas"]) for agent in agents}


def test_an_agent_whose_replica_died_is_away_within_15_seconds(stack: Stack, gateway: Gateway) -> None:
    assert names_of_agents(gateway)["helper"] == 1
    stack.services["helper"].kill()
    died = time.monotonic()
    eventually(lambda: names_of_agents(gateway)["helper"] == 0, what="helper is away")
    assert time.monotonic() - died < 15
    stack.services["helper"].start()


def test_an_agent_that_stops_says_goodbye(stack: Stack, gateway: Gateway) -> None:
    second = stack.agent(TEAM / "helper.yaml", name="helper-2")
    eventually(lambda: names_of_agents(gateway)["helper"] == 2, what="two replicas of helper")
    assert second.terminate() == 0
    eventually(lambda: names_of_agents(gateway)["helper"] == 1, within=5, what="one replica of helper")


def test_a_new_agent_is_offered_at_the_next_step_without_a_restart(
    stack: Stack, gateway: Gateway, tmp_path: Path
) -> None:
    """The boss begins without its helper, learns so, and has it at its second step."""
    stack.services["helper"].terminate()
    assert gateway.request("DELETE", "/v1/agents/helper").status_code == 204
    eventually(lambda: "helper" not in names_of_agents(gateway), what="helper is gone")
    # The boss's first step lasts until its worker answers, and so until its tool is let go on.
    tools = stack.services["tools"]
    tools.signal(signal.SIGSTOP)
    try:
        run = gateway.submit("boss", f"delegate: use look {tmp_path / 'marks'} 0")
        refused = gateway.wait_for(run, "call.refused")
        assert "helper" in refused["event"]["error"]["message"]
        stack.services["helper"].start()
        eventually(lambda: "helper" in names_of_agents(gateway), what="helper is back")
    finally:
        tools.signal(signal.SIGCONT)
    result = gateway.finished(run)
    assert result["state"] == "success"
    offers = [data["event"] for name, data in gateway.events(run) if name == "toolset.changed" and data["run"] == run]
    assert offers[0]["missing"] == ["helper"]
    assert offers[-1]["missing"] == []
    assert "helper" in [member["name"] for member in offers[-1]["members"]]


def test_one_line_of_all_logs_tells_that_a_run_begins_and_one_that_it_ends(
    stack: Stack, gateway: Gateway, tmp_path: Path
) -> None:
    second = stack.add("gateway-2", "cadre_gateway")
    run = gateway.submit("boss", f"delegate: use look {tmp_path / 'marks'} 0")
    gateway.succeeded(run)
    reader = Gateway(second)

    def is_listed() -> bool:
        lists = [one.request("GET", "/v1/runs?state=success").json()["runs"] for one in (gateway, reader)]
        return all(run in [one["id"] for one in runs] for runs in lists)

    eventually(is_listed, what="both gateways have read past the end of the run")
    assert second.terminate() == 0
    lines = [line for service in stack.services.values() for line in service.log.read_text().splitlines()]
    tree = [run, *(child["id"] for child in gateway.run(run)["children"])]
    assert len(tree) == 3
    for one in tree:
        told = [line for line in lines if f"run {one} of " in line]
        assert [" begins, " in line for line in told] == [True, False], told
        assert [" ends: success, " in line for line in told] == [False, True], told
        assert all(trace_id(run) in line for line in told)


def test_sigterm_lets_a_tool_finish(stack: Stack, gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("worker", f"use effect {file} 1.5")
    eventually(file.exists, what="the tool has begun")
    began = time.monotonic()
    assert stack.services["tools"].terminate() == 0
    assert time.monotonic() - began < 15
    result = gateway.finished(run)
    assert result["output"] == "effect is done"
    assert len(file.read_text().splitlines()) == 1
    stack.services["tools"].start()


def test_sigterm_hands_a_model_call_back(stack: Stack, gateway: Gateway) -> None:
    """Another replica takes over work that does not finish within the grace period."""
    stack.environment["CADRE_DRAIN_SECONDS"] = "1"
    hasty = stack.agent(TEAM / "worker.yaml", name="worker-hasty")
    stack.environment["CADRE_DRAIN_SECONDS"] = "5"
    stack.services["worker"].terminate()
    run = gateway.submit("worker", "think 3")
    gateway.wait_for(run, "model.called")
    began = time.monotonic()
    hasty.terminate()
    assert time.monotonic() - began < 10
    stack.services["worker"].start()
    assert gateway.succeeded(run) == "thought"


def test_cancel_reaches_children_and_tools(gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "marks"
    run = gateway.submit("boss", f"delegate: use look {file} 20")
    eventually(file.exists, what="the tool has begun")
    answer = gateway.request("POST", f"/v1/runs/{run}/cancel", json={"reason": "changed my mind"})
    assert answer.status_code == 202
    result = gateway.finished(run, within=15)
    assert result["state"] == "cancelled"
    assert result["error"]["message"] == "changed my mind"

    def states() -> dict[str, str]:
        return {child["agent"]: child["state"] for child in gateway.run(run)["children"]}

    eventually(lambda: states()["worker"] == "cancelled", what="the worker ended too", state=states)


def test_cancel_aborts_a_model_call(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("worker", "think 3")
    gateway.wait_for(run, "model.called")
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={})
    assert gateway.finished(run, within=15)["state"] == "cancelled"

    def left() -> bool:
        return any(line["outcome"] == "left" for line in stack.model_requests())

    eventually(left, what="the model call was aborted")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{not json", "not a message"),
        (b'{"v": 0, "type": "task"}', "message of type 'task'"),
        (b'{"v": 1, "type": "nonsense", "id": "x", "tree": "t", "run": "t", "at": 1}', "nonsense"),
        (b'{"v": 1, "type": "task", "id": "x", "tree": "t", "run": "t", "at": "now"}', "at"),
        (b" " * 300_000, "262144"),
    ],
)
def test_an_unreadable_message_is_a_dead_letter(stack: Stack, gateway: Gateway, data: bytes, why: str) -> None:
    """The worker lives on; the reason is kept in the stream of dead letters."""

    async def send_and_look() -> str:
        async with stack.platform() as platform:
            topology, nc = platform.topology, platform.nc
            advisories = await nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
            await settled(nc)
            await jetstream.append(nc, topology.inbox("worker", "test", "deadletter", "deadletter"), data)
            await advisories.next_msg(timeout=patience())
            found = ""
            for _ in range(100):
                answer = await jetstream.api(nc, f"STREAM.INFO.{topology.dead_stream}")
                held = await jetstream.get(nc, topology.dead_stream, answer["state"]["last_seq"])
                found = held.data.decode() if held else ""
                if why in found:
                    break
                await asyncio.sleep(0.05)
            return found

    assert why in asyncio.run(send_and_look())
    run = gateway.submit("worker", "limited 0.01")
    assert gateway.finished(run)["state"] == "success"


def test_the_manager_of_an_unreadable_task_is_told(stack: Stack, gateway: Gateway) -> None:
    """Nothing begins, but anyone who delegated must not wait for ever."""

    async def send_and_hear() -> bytes:
        async with stack.platform() as platform:
            topology, nc = platform.topology, platform.nc
            reports = await nc.subscribe(topology.inbox("boss", "helper", "lost", "lost"))
            await settled(nc)
            await jetstream.append(nc, topology.inbox("helper", "boss", "lost", "lost_1_0"), b"{")
            heard = await reports.next_msg(timeout=patience())
            return heard.data

    report: Report = decode(asyncio.run(send_and_hear()), Report)
    assert (report.child, report.state) == ("lost_1_0", "error")
    assert report.error is not None
    assert report.error.code == "poisoned"
