"""Agents without a replica are sent tasks by the cards that they have at rest, until these are taken away."""

import json
from functools import partial
from pathlib import Path

import httpx2
import pytest

from harness.command import Commands, only_line
from harness.patience import eventually
from harness.stack import Gateway, Stack
from harness.texts import holds

TEAM = Path(__file__).parent / "team"
MCP_HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
}
_ABOUT_CLIENT = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": _ABOUT_CLIENT}}


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    """Of the team only the boss is served; its members are at rest, and have never been anything else."""
    stack.environment["CADRE_DOORS"] = "openai,mcp,a2a"
    files = [part for name in ("worker", "helper") for part in ("--at-rest", TEAM / f"{name}.yaml")]
    provisioned = Commands(stack.folder, stack.environment)("provision", *files)
    assert provisioned.returncode == 0, provisioned.stderr
    stack.agent(TEAM / "boss.yaml", start=False)
    stack.agent(TEAM / "worker.yaml", start=False)
    stack.agent(TEAM / "helper.yaml", start=False)
    stack.tools(TEAM / "tools.py", start=False)
    gateway = stack.gateway(start=False)
    for name in ("boss", "tools", "gateway"):
        stack.services[name].start()
    gateway.wait_offered(3)
    return gateway


def has_work(gateway: Gateway, agent: str) -> bool:
    """Return what an autoscaler follows."""
    queues = gateway.request("GET", "/v1/load").json()["queues"]
    return {"kind": "agent", "name": agent, "messages": 1} in queues


def replicas(gateway: Gateway) -> dict[str, int]:
    agents = gateway.request("GET", "/v1/agents").json()["agents"]
    return {agent["name"]: len(agent["replicas"]) for agent in agents}


def test_members_at_rest_are_delegated_to_and_started_for_it(
    stack: Stack, gateway: Gateway, cadre: Commands, tmp_path: Path
) -> None:
    assert replicas(gateway) == {"boss": 1, "helper": 0, "worker": 0}
    listed = cadre("ps").stdout.splitlines()
    assert ["agent", "worker", "0", "(at", "rest)"] in [line.split()[:5] for line in listed]
    run = gateway.submit("boss", f"delegate: use look {tmp_path / 'marks'} 0")
    for name in ("worker", "helper"):
        eventually(partial(has_work, gateway, name), what=f"{name} has something to do")
        stack.services[name].start()
    assert gateway.succeeded(run).endswith("hello")


def test_an_agent_that_has_gone_to_rest_is_given_tasks_until_it_is_retired(
    stack: Stack, gateway: Gateway, cadre: Commands
) -> None:
    helper = stack.services["helper"]
    if not helper.is_running:
        helper.start()
    assert helper.terminate() == 0
    eventually(lambda: replicas(gateway)["helper"] == 0, what="helper is at rest")
    run = gateway.submit("helper", "hello?")
    assert gateway.run(run)["state"] == "queued"
    eventually(lambda: run in cadre("runs", "--state", "queued").stdout, what="the list has it")
    submitted = {"status": "TASK_STATE_SUBMITTED"}
    (task,) = gateway.request("GET", "/a2a/helper/tasks", params=submitted).json()["tasks"]
    assert (task["id"], task["status"]["state"]) == (run, "TASK_STATE_SUBMITTED")
    helper.start()
    assert gateway.succeeded(run) == "hello"

    assert cadre("retire", "helper").returncode == 0
    assert replicas(gateway)["helper"] == 1, "who is live is sent tasks as before"
    assert helper.terminate() == 0
    eventually(lambda: "helper" not in replicas(gateway), what="helper is gone")
    refused = gateway.request("POST", "/v1/runs", json={"agent": "helper", "task": "hello?"})
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-agent")
    assert "'helper'" in only_line(cadre("retire", "helper"), 4)


def test_who_provisions_an_agent_that_always_has_replicas_takes_its_card_away(
    gateway: Gateway, cadre: Commands
) -> None:
    card = '{"name":"passing","description":"Comes and goes."}'
    assert cadre("provision", "--at-rest", card).returncode == 0
    eventually(lambda: replicas(gateway).get("passing") == 0, what="it is at rest")
    assert cadre("provision", "--agent", "passing").returncode == 0
    eventually(lambda: "passing" not in replicas(gateway), what="it is unknown")


def test_an_agent_at_rest_is_asked_for_what_it_takes(gateway: Gateway, cadre: Commands) -> None:
    """By a client of MCP too: of a tool whose schema changes while its agent rests every call is refused."""
    amount = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    form = {"name": "form", "description": "Fills in a form.", "input_schema": amount}
    assert cadre("provision", "--at-rest", json.dumps(form)).returncode == 0
    eventually(lambda: replicas(gateway).get("form") == 0, what="it is at rest")

    def start(**given: float | str) -> httpx2.Response:
        wanted = {"agent": "form", "task": "Pay.", "inputs": given}
        return gateway.request("POST", "/v1/runs", json=wanted)

    refused = start(amount="much")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request"), refused.text
    assert start(amount=12.5).status_code == 202
    listed = gateway.request("POST", "/mcp", json=LIST_TOOLS, headers=MCP_HEADERS).json()["result"]["tools"]
    assert {tool["name"]: tool["inputSchema"] for tool in listed}["form"] == amount
    assert cadre("retire", "form").returncode == 0


def test_a_rollout_of_an_agent_at_rest_says_what_it_wants_first(gateway: Gateway, cadre: Commands) -> None:
    card = '{"name":"calm","description":"Has no runs."}'
    assert cadre("provision", "--at-rest", card).returncode == 0
    eventually(lambda: replicas(gateway).get("calm") == 0, what="it is at rest")
    shown = cadre("rollout", "calm", "-o", "json")
    view = json.loads(shown.stdout)
    assert (shown.returncode, view["active"], view["revisions"]) == (0, False, [])
    (warning,) = view["warnings"]
    assert "calm" in warning
    assert only_line(cadre("rollout", "calm"), 0) == f"cadre: {warning}"
    assert "'3f2a'" in only_line(cadre("rollout", "calm", "--to", "3f2a"), 2)
    assert cadre("retire", "calm").returncode == 0
    eventually(lambda: "calm" not in replicas(gateway), what="calm is gone")
    assert "'calm'" in only_line(cadre("rollout", "calm"), 4)


def test_a_card_that_cannot_be_kept_is_refused(cadre: Commands) -> None:
    assert holds(only_line(cadre("provision", "--at-rest", '{"name":1}'), 2), "--at-rest", "`$.name`")
    assert "nobody.yaml: cannot be read" in only_line(cadre("provision", "--at-rest", "nobody.yaml"), 2)
