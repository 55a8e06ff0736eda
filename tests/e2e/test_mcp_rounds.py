"""Calls of MCP servers that are not answered at once: tasks, and questions to a person. The server of the tasks is the
gateway itself, whose agents are tools there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.patience import eventually
from harness.stack import Gateway, Stack

pytest.importorskip("mcp")

TEAM = Path(__file__).parent / "rounds"
SERVER = Path(__file__).parents[1] / "integration" / "mcp_server.py"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    """The agents, a gateway that speaks MCP, and an executor of the tools that are its agents."""
    for file in sorted(TEAM.glob("*.yaml")):
        if file.name != "script.yaml":
            stack.agent(file, start=False)
    service = stack.add("gateway", "cadre_gateway", start=False, CADRE_DOORS="mcp")
    servers = {
        "there": {"url": f"{service.url}/mcp", "cadre": {"allow": ["slow", "asker"]}},
        "desk": {"command": sys.executable, "args": [str(SERVER), "stdio"], "cadre": {"allow": ["paint"]}},
    }
    file = stack.folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    # A server that is not up yet may look like one of an earlier era.
    stack.start_all()
    stack.tools(file, name="executor")
    Gateway(service).wait_offered(3)


def runs_of(gateway: Gateway, agent: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.request("GET", "/v1/runs", params={"agent": agent}).json()["runs"]
    return found


def question_of(gateway: Gateway, run: str) -> dict[str, Any]:
    """The question that waits in the run, as those who decide see it."""
    found: list[dict[str, Any]] = []

    def waits() -> bool:
        listed = gateway.request("GET", "/v1/approvals").json()["approvals"]
        found[:] = [one for one in listed if one["run"] == run]
        return bool(found)

    eventually(waits, what=f"run {run} asks a person")
    shown: dict[str, Any] = gateway.request("GET", f"/v1/approvals/{found[0]['call']}").json()
    assert found[0]["schema"] == shown["schema"]
    return shown


def decide(gateway: Gateway, call: str, **ruling: Any) -> int:
    return gateway.request("POST", f"/v1/approvals/{call}", json=ruling).status_code


def test_a_task_is_awaited_through_the_death_of_all_who_know_of_it(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("boss", "slow 5")
    paused = gateway.wait_for(run, "tool.paused")
    assert paused["event"]["unfinished"]["state"]["task"] == runs_of(gateway, "slow")[0]["id"]
    for name in ("executor", "boss"):
        stack.services[name].kill()
    stack.start_all()
    assert gateway.succeeded(run) == "done after 5 s"
    assert len(runs_of(gateway, "slow")) == 1


def test_a_task_that_nobody_awaits_any_more_is_cancelled(gateway: Gateway) -> None:
    run = gateway.submit("boss", "slow 600")
    task = gateway.wait_for(run, "tool.paused")["event"]["unfinished"]["state"]["task"]
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={"reason": "enough"})
    assert gateway.finished(task)["state"] == "cancelled"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"verdict": "corrected", "arguments": {"confirm": True}}, "it may be"),
        ({"verdict": "rejected"}, "it may not be"),
    ],
)
def test_a_task_asks_a_person(gateway: Gateway, said: dict[str, Any], answer: str) -> None:
    run = gateway.submit("boss", "inquire")
    asked = question_of(gateway, run)
    assert (asked["name"], asked["arguments"], asked["reason"]) == ("there_asker", {}, "May it be?")
    assert asked["schema"]["required"] == ["confirm"]
    assert decide(gateway, asked["call"], verdict="approved") == 422
    assert decide(gateway, asked["call"], **said) == 200
    assert gateway.succeeded(run) == answer


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"verdict": "corrected", "arguments": {"colour": "blue"}}, "the door is blue"),
        ({"verdict": "rejected"}, "the door stays as it is"),
    ],
)
def test_a_call_asks_a_person_before_it_is_answered(
    stack: Stack, gateway: Gateway, said: dict[str, Any], answer: str
) -> None:
    """The executor, and with it the server, is killed while the person thinks."""
    run = gateway.submit("boss", "paint")
    asked = question_of(gateway, run)
    assert (asked["reason"], list(asked["schema"]["properties"])) == ("Which colour?", ["colour"])
    stack.services["executor"].kill()
    stack.services["executor"].start()
    assert decide(gateway, asked["call"], **said) == 200
    assert gateway.succeeded(run) == json.dumps({"result": answer}, separators=(",", ":"))
