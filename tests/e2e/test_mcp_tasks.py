"""Calls of agents over MCP as tasks, which outlive their client and their gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.exposition import series_of, total
from harness.patience import patience, until
from harness.people import done
from harness.stack import Gateway, Service, Stack

pytest.importorskip("mcp")

from mcp import Client

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


def message_of(method: str, *, knows_tasks: bool = True, **params: Any) -> dict[str, Any]:
    """The HTTP request for one message of a client that knows tasks, which no released client of Python does yet."""
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
    return {"json": message, "headers": headers}


async def rpc(service: Service, method: str, *, knows_tasks: bool = True, **params: Any) -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=patience()) as http:
        message = message_of(method, knows_tasks=knows_tasks, **params)
        answer = await http.post(f"{service.url}/mcp", **message)
    found: dict[str, Any] = answer.json()
    return found


@contextlib.asynccontextmanager
async def listening(service: Service, *tasks: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the messages of a stream about these tasks."""

    async def told(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
        async for line in lines:
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))

    message = message_of("subscriptions/listen", notifications={"taskIds": tasks})
    async with (
        httpx2.AsyncClient(timeout=patience()) as http,
        http.stream("POST", f"{service.url}/mcp", **message) as answer,
    ):
        yield told(answer.aiter_lines())


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
    said = {call: {"action": "accept", "content": {"confirm": True}}}
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
    assert (await rpc(gateway.service, "tools/call", name="nobody", arguments={}))["error"]["code"] == -32602
    counted = series_of(gateway.request("GET", "/metrics").text)
    for refusal in ("unknown-run", "unknown-agent"):
        assert total(counted, "cadre_door_requests_total", cadre_door="mcp", error_type=refusal) == 1
    refused = await rpc(gateway.service, "tasks/get", taskId=begun["taskId"], knows_tasks=False)
    assert refused["error"]["code"] == -32021
    misled = await rpc(gateway.service, "tasks/get", taskId=begun["taskId"], name="another")
    assert misled["error"]["code"] == -32020


async def test_tasks_answer_with_data_and_with_errors(gateway: Gateway) -> None:
    told = (await rpc(gateway.service, "tools/call", name="teller", arguments={"task": "Ann"}))["result"]
    ended = await task_with(gateway.service, told["taskId"], "completed")
    assert ended["result"]["structuredContent"] == {"name": "Ann", "age": 41}
    quick = await rpc(gateway.service, "tools/call", name="greeter", arguments={"name": "Ann"})
    assert (quick["result"]["resultType"], "taskId" in quick["result"]) == ("complete", False)
    broken = (await rpc(gateway.service, "tools/call", name="clerk", arguments={"task": "break"}))["result"]
    ended = await task_with(gateway.service, broken["taskId"], "completed")
    assert ended["result"]["isError"]


def without(told: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key not in ("_meta", "resultType")}


async def test_a_client_is_told_how_its_tasks_go_on_at_any_gateway(stack: Stack, gateway: Gateway, books: Path) -> None:
    """The gateway that reported on them is killed; the other one goes on with what is then."""
    replica, asked = stack.services["replica"], {"task": f"refund {books} 902"}
    task = (await rpc(gateway.service, "tools/call", name="clerk", arguments=asked))["result"]["taskId"]

    async def waiting(told: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
        agreed = await anext(told)
        assert agreed["method"] == "notifications/subscriptions/acknowledged"
        assert agreed["params"]["notifications"] == {"taskIds": [task]}
        async for one in told:
            assert (one["method"], one["params"]["taskId"]) == ("notifications/tasks", task)
            assert one["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 1}
            if one["params"]["status"] == "input_required":
                return dict(one["params"]["inputRequests"])
        raise AssertionError("the stream ended before the task did")

    with contextlib.suppress(httpx2.HTTPError):
        async with listening(gateway.service, task, "nothing") as told:
            await waiting(told)
            gateway.service.kill()
            await anext(told)
    async with listening(replica, task) as told:
        (call,) = await waiting(told)
        said = {call: {"action": "accept", "content": {"confirm": True}}}
        await rpc(replica, "tasks/update", taskId=task, inputResponses=said)
        rest = [one async for one in told]
    gateway.service.start()
    assert [one["params"]["status"] for one in rest[:-1]] == ["working", "completed"]
    now = await rpc(replica, "tasks/get", taskId=task)
    assert without(rest[-2]["params"]) == without(now["result"])
    assert rest[-1]["result"]["resultType"] == "complete"
    assert done(books) == ["refund 902"]


async def test_who_does_not_know_tasks_hears_of_none(gateway: Gateway) -> None:
    asked = {"notifications": {"taskIds": ["some"]}}
    refused = await rpc(gateway.service, "subscriptions/listen", knows_tasks=False, **asked)
    assert refused["error"]["code"] == -32021
    wrong = await rpc(gateway.service, "subscriptions/listen", notifications={"taskIds": [5]})
    assert wrong["error"]["code"] == -32602


async def test_a_client_hears_of_agents_that_come_and_go(stack: Stack, gateway: Gateway) -> None:
    async with (
        Client(f"{gateway.service.url}/mcp") as client,
        client.listen(tools_list_changed=True) as events,
    ):
        teller = stack.services["teller"]
        await asyncio.to_thread(teller.terminate)
        assert "teller" in {tool.name for tool in (await client.list_tools()).tools}, "it is away, not unknown"
        retired = await asyncio.to_thread(gateway.request, "DELETE", "/v1/agents/teller")
        assert retired.status_code == 204, retired.text
        async with asyncio.timeout(patience()):
            await anext(aiter(events))
            assert "teller" not in {tool.name for tool in (await client.list_tools()).tools}
            teller.start()
            await anext(aiter(events))
        assert "teller" in {tool.name for tool in (await client.list_tools()).tools}
