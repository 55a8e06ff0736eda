"""Calls of agents over MCP as tasks, which outlive their client and their gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.patience import patience, until
from harness.people import done
from harness.stack import Gateway, Service, Stack

pytest.importorskip("mcp")

TEAM = Path(__file__).parent / "calling"
TASKS = "io.modelcontextprotocol/tasks"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    """Two gateways speak MCP."""
    stack.environment["CADRE_DOORS"] = "mcp"
    stack.add("replica", "cadre_gateway", start=False)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


async def rpc(service: Service, method: str, *, knows_tasks: bool = True, **params: Any) -> dict[str, Any]:
    """One message of a client that knows tasks, which no released client of Python does yet."""
    version, name = "2026-07-28", params.get("name", params.get("taskId", ""))
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}} if knows_tasks else {}},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": method,
        "mcp-name": name,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with httpx2.AsyncClient(timeout=patience()) as http:
        answer = await http.post(f"{service.url}/mcp", json=message, headers=headers)
    found: dict[str, Any] = answer.json()
    return found


async def task_with(service: Service, task: str, status: str) -> dict[str, Any]:
    async def reached() -> dict[str, Any] | None:
        found: dict[str, Any] = (await rpc(service, "tasks/get", taskId=task))["result"]
        return found if found["status"] == status else None

    return await until(reached)


async def test_a_task_outlives_its_gateway(stack: Stack, gateway: Gateway) -> None:
    replica, text = stack.services["replica"], "wait as a task"
    begun = (await rpc(gateway.service, "tools/call", name="clerk", arguments={"task": text}))["result"]
    assert (begun["resultType"], begun["status"], begun["ttlMs"]) == ("task", "working", None)
    gateway.service.kill()

    async def asked() -> bool:
        return any(text in json.dumps(one) for one in await asyncio.to_thread(stack.model_requests))

    await until(asked)
    await asyncio.to_thread(stack.release_model)
    done_there = await task_with(replica, begun["taskId"], "completed")
    gateway.service.start()
    done_here = await task_with(gateway.service, begun["taskId"], "completed")
    assert done_here["result"] == done_there["result"]
    assert done_here["result"]["content"] == [{"type": "text", "text": "Done waiting."}]
    listed = gateway.request("GET", "/v1/runs").json()["runs"]
    assert [one["task"] for one in listed] == [text]


async def test_a_task_asks_a_person_by_elicitation(gateway: Gateway, books: Path) -> None:
    asked = {"task": f"refund {books} 900"}
    begun = (await rpc(gateway.service, "tools/call", name="clerk", arguments=asked))["result"]
    waiting = await task_with(gateway.service, begun["taskId"], "input_required")
    ((call, question),) = waiting["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    said = {call: {"action": "accept", "content": {"decision": "approve"}}}
    update = await rpc(gateway.service, "tasks/update", taskId=begun["taskId"], inputResponses=said)
    assert update["result"]["resultType"] == "complete"
    ended = await task_with(gateway.service, begun["taskId"], "completed")
    assert ended["result"]["content"][0]["text"] == "refunded 900"
    assert done(books) == ["refund 900"]


async def test_a_task_is_cancelled_and_an_unknown_one_refused(gateway: Gateway, books: Path) -> None:
    asked = {"task": f"refund {books} 901"}
    begun = (await rpc(gateway.service, "tools/call", name="clerk", arguments=asked))["result"]
    await task_with(gateway.service, begun["taskId"], "input_required")
    assert "result" in await rpc(gateway.service, "tasks/cancel", taskId=begun["taskId"])
    await task_with(gateway.service, begun["taskId"], "cancelled")
    assert (await rpc(gateway.service, "tasks/get", taskId="nothing"))["error"]["code"] == -32602
    refused = await rpc(gateway.service, "tasks/get", taskId=begun["taskId"], knows_tasks=False)
    assert refused["error"]["code"] == -32021


async def test_tasks_answer_with_data_and_with_errors(gateway: Gateway) -> None:
    told = (await rpc(gateway.service, "tools/call", name="teller", arguments={"task": "Ann"}))["result"]
    ended = await task_with(gateway.service, told["taskId"], "completed")
    assert ended["result"]["structuredContent"] == {"name": "Ann", "age": 41}
    broken = (await rpc(gateway.service, "tools/call", name="clerk", arguments={"task": "break"}))["result"]
    ended = await task_with(gateway.service, broken["taskId"], "completed")
    assert ended["result"]["isError"]
