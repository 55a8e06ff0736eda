"""Agents as tools of an MCP server: driven by the official client, over HTTP, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import pytest

from harness.patience import patience, until
from harness.people import decide, done
from harness.stack import Gateway, Service, Stack

pytest.importorskip("mcp")

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent

TEAM = Path(__file__).parent / "calling"
ADMIN_KEY = "an-admin-key-of-more-than-32-characters"
MODERN, LEGACY = "auto", "legacy"
ERAS = pytest.mark.parametrize("mode", [MODERN, LEGACY])
KEY = "cadre.dev/idempotency-key"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    """Every gateway speaks MCP; one of them asks who calls."""
    stack.environment["CADRE_DOORS"] = "openai,mcp"
    keys = {"CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": ADMIN_KEY}
    stack.add("guarded", "cadre_gateway", start=False, CADRE_MCP_DECIDE="on", **keys)
    stack.add("replica", "cadre_gateway", start=False)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


@contextlib.asynccontextmanager
async def connected(service: Service, mode: str = MODERN, **headers: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=headers, timeout=patience()) as http:
        transport = streamable_http_client(f"{service.url}/mcp", http_client=http)
        async with Client(transport, mode=cast(Any, mode)) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def run_of(result: CallToolResult) -> str:
    return str((result.meta or {})["cadre.dev/run"])


def keyed(key: str) -> RequestParamsMeta:
    return cast(RequestParamsMeta, {KEY: key})


def runs(gateway: Gateway) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.request("GET", "/v1/runs", params={"limit": "1000"}).json()["runs"]
    return found


# --- what there is, and what it answers


@ERAS
async def test_agents_are_tools_with_their_answers_schema(gateway: Gateway, mode: str) -> None:
    async with connected(gateway.service, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert [name for name in tools if not name.startswith("cadre_")] == ["clerk", "greeter", "teller"]
    assert tools["clerk"].description == "Refunds orders."
    assert tools["clerk"].input_schema["required"] == ["task"]
    assert tools["clerk"].output_schema is None
    assert set((tools["teller"].output_schema or {})["properties"]) == {"name", "age"}
    own = {"cadre_list_runs", "cadre_get_run", "cadre_cancel_run", "cadre_send_message"}
    assert {name for name in tools if name.startswith("cadre_")} == own


@ERAS
async def test_a_call_tells_its_progress_and_ends_with_the_answer(gateway: Gateway, books: Path, mode: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with connected(gateway.service, mode) as client:
        answer = await client.call_tool("clerk", {"task": f"refund {books} 50"}, progress_callback=tell)
    assert (answer.is_error, text_of(answer)) == (False, "refunded 50")
    assert done(books) == ["refund 50"]
    assert any("calls refund" in (message or "") for _, message in told)
    assert [count for count, _ in told] == sorted({count for count, _ in told})
    assert gateway.run(run_of(answer))["state"] == "success"


async def test_a_run_that_has_ended_before_it_is_looked_at_tells_its_progress(gateway: Gateway, books: Path) -> None:
    told: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    call = {"task": f"refund {books} 50"}
    async with connected(gateway.service) as client:
        await client.call_tool("clerk", call, meta=keyed("ended"))
        again = await client.call_tool("clerk", call, meta=keyed("ended"), progress_callback=tell)
    assert (text_of(again), done(books)) == ("refunded 50", ["refund 50"])
    assert any("calls refund" in (message or "") for message in told)


@ERAS
async def test_an_answer_with_a_schema_is_data(gateway: Gateway, mode: str) -> None:
    async with connected(gateway.service, mode) as client:
        answer = await client.call_tool("teller", {"task": "Ann"})
    assert answer.structured_content == {"name": "Ann", "age": 41}
    assert json.loads(text_of(answer)) == {"name": "Ann", "age": 41}


async def test_an_agent_takes_the_arguments_that_it_names(gateway: Gateway) -> None:
    before = runs(gateway)
    async with connected(gateway.service) as client:
        (greeter,) = [tool for tool in (await client.list_tools()).tools if tool.name == "greeter"]
        assert greeter.input_schema["required"] == ["name"]
        wrong = await client.call_tool("greeter", {"nme": "Ann"})
        assert wrong.is_error
        assert "inputs: " in text_of(wrong)
        posted = gateway.request("POST", "/v1/runs", json={"agent": "greeter", "task": "Ann"})
        assert posted.status_code == 422, posted.text
        assert runs(gateway) == before
        meta = cast(RequestParamsMeta, {"cadre.dev/session": "hall"})
        answer = await client.call_tool("greeter", {"name": "Ann"}, meta=meta)
    assert text_of(answer) == "Hello, Ann!"
    assert gateway.run(run_of(answer))["session"] == "hall"


async def test_a_conversation_has_the_session_that_a_call_names(gateway: Gateway) -> None:
    async with connected(gateway.service) as client:
        answer = await client.call_tool("teller", {"task": "Ann", "session": "desk"})
    assert gateway.run(run_of(answer))["session"] == "desk"


# --- errors begin no run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "task"),
        ({"task": ""}, "task is empty"),
        ({"task": 5}, "task"),
        ({"task": "Hi", "tsk": 1}, "known keys: task, inputs, session"),
        ({"task": "Hi", "arguments": {}}, "known keys: task, inputs, session"),
        ({"task": "Hi", "session": "a b"}, "session"),
        ({"task": "x" * 10_000_000}, "too-large"),
    ],
)
async def test_bad_arguments_are_an_error_that_a_model_can_read(
    gateway: Gateway, arguments: dict[str, Any], says: str
) -> None:
    before = runs(gateway)
    async with connected(gateway.service) as client:
        answer = await client.call_tool("clerk", arguments)
    assert answer.is_error
    assert says in text_of(answer)
    assert runs(gateway) == before
    assert 'cadre_door="mcp"' in httpx2.get(f"{gateway.service.url}/metrics").text


@ERAS
async def test_an_unknown_agent_is_an_error_of_the_protocol(gateway: Gateway, mode: str) -> None:
    async with connected(gateway.service, mode) as client:
        with pytest.raises(MCPError, match="tools/list"):
            await client.call_tool("nobody", {"task": "Hi"})


async def test_a_run_that_fails_says_why(gateway: Gateway) -> None:
    async with connected(gateway.service) as client:
        answer = await client.call_tool("clerk", {"task": "break"})
    assert answer.is_error
    assert "no such key" in text_of(answer)


CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "clerk", "arguments": {"task": "Hi"}},
}


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"[]", {}, 400),
        (json.dumps([CALL, CALL]).encode(), {}, 400),
        (json.dumps(CALL).encode(), {"mcp-protocol-version": "1999-01-01"}, 400),
        (json.dumps(CALL).encode(), {"accept": "text/html"}, 406),
        (json.dumps(CALL).encode(), {"content-type": "text/plain"}, 400),
        (json.dumps(CALL).encode(), {"origin": "https://elsewhere.example"}, 403),
        (json.dumps(CALL).encode(), {"host": "elsewhere.example"}, 421),
        (b"x" * (33 * 1024 * 1024), {}, 413),
    ],
)
def test_what_is_no_message_begins_no_run(
    gateway: Gateway, content: bytes, headers: dict[str, str], status: int
) -> None:
    before = runs(gateway)
    usual = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    url = f"{gateway.service.url}/mcp"
    answer = httpx2.post(url, content=content, headers={**usual, **headers}, timeout=patience())
    assert answer.status_code == status, answer.text
    assert runs(gateway) == before


def test_there_is_nothing_to_get_or_delete(gateway: Gateway) -> None:
    for method in ("GET", "DELETE"):
        answer = httpx2.request(method, f"{gateway.service.url}/mcp")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# --- calls that are given up, and sent again


async def running(gateway: Gateway, task: str) -> str:
    async def begun() -> str | None:
        found = await asyncio.to_thread(runs, gateway)
        return next((one["id"] for one in found if one["task"] == task and one["step"] >= 0), None)

    return await until(begun)


@ERAS
async def test_a_call_that_is_given_up_cancels_its_run(gateway: Gateway, mode: str) -> None:
    task = f"wait for a word that is never said ({mode})"
    async with connected(gateway.service, mode) as client:
        call = asyncio.create_task(client.call_tool("clerk", {"task": task}))
        run = await running(gateway, task)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    async def cancelled() -> bool:
        return bool((await asyncio.to_thread(gateway.run, run))["state"] == "cancelled")

    await until(cancelled)


@pytest.mark.parametrize("at", ["the same gateway", "another gateway"])
async def test_a_client_of_2025_gives_a_call_up_by_a_notification(gateway: Gateway, stack: Stack, at: str) -> None:
    """As its official clients do, by default after 60 seconds: the request itself stays open."""
    task = f"wait for a word that is never said (to {at})"
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    async with httpx2.AsyncClient(timeout=patience()) as http:

        async def post(service: Service, message: dict[str, Any], **headers: str) -> httpx2.Response:
            usual = {"accept": "application/json, text/event-stream", **headers}
            return await http.post(f"{service.url}/mcp", json={"jsonrpc": "2.0", **message}, headers=usual)

        begun = await post(gateway.service, {"id": 0, "method": "initialize", "params": begin})
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        params = {"name": "clerk", "arguments": {"task": task}}
        call = asyncio.create_task(
            post(gateway.service, {"id": 1, "method": "tools/call", "params": params}, **session)
        )
        run = await running(gateway, task)
        service = gateway.service if at == "the same gateway" else stack.services["replica"]
        ended = {"method": "notifications/cancelled", "params": {"requestId": 1, "reason": "timeout"}}
        other = {**session, "mcp-session-id": "0" * 32}
        assert (await post(service, ended, **other)).status_code == 202
        assert gateway.run(run)["state"] != "cancelled", "the request of another session"
        assert (await post(service, ended, **session)).status_code == 202
        await call
    assert gateway.run(run)["state"] == "cancelled"


def test_a_message_without_accept_is_answered_and_an_unknown_cursor_is_refused(gateway: Gateway) -> None:
    def listed(params: dict[str, Any]) -> dict[str, Any]:
        wanted = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
        url = urlsplit(gateway.service.url)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=patience())
        headers = {"content-type": "application/json", "mcp-protocol-version": "2025-06-18"}
        with contextlib.closing(connection):
            connection.request("POST", "/mcp", wanted, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 200, text
        found: dict[str, Any] = json.loads(text.partition("data: ")[2] or text)
        return found

    assert listed({})["result"]["tools"]
    assert listed({"cursor": "made-up"})["error"]["code"] == -32602


async def test_a_call_with_a_key_goes_on_and_is_found_at_another_gateway(stack: Stack, gateway: Gateway) -> None:
    """The gateway is killed in the middle; the same call, at the other replica, gets the answer of the one run."""
    task, replica = "wait until the gateway was killed", stack.services["replica"]
    with contextlib.suppress(MCPError, httpx2.HTTPError, ExceptionGroup):
        async with connected(gateway.service) as client:
            call = asyncio.create_task(client.call_tool("clerk", {"task": task}, meta=keyed("killed")))
            run = await running(Gateway(replica), task)
            gateway.service.kill()
            await call
    gateway.service.start()
    async with connected(replica) as client:
        again = asyncio.create_task(client.call_tool("clerk", {"task": task}, meta=keyed("killed")))
        await until_asked(stack, task)
        await asyncio.to_thread(stack.release_model)
        answer = await again
        other = await client.call_tool("clerk", {"task": "something else"}, meta=keyed("killed"))
    assert (run_of(answer), text_of(answer)) == (run, "Done waiting.")
    assert "idempotency-key-reused" in text_of(other)
    assert [one["task"] for one in runs(gateway)].count(task) == 1


async def until_asked(stack: Stack, task: str) -> None:
    async def asked() -> bool:
        return any(task in json.dumps(one) for one in await asyncio.to_thread(stack.model_requests))

    await until(asked)


# --- runs that wait for a person


async def test_a_call_that_waits_for_a_person_says_so_and_goes_on(gateway: Gateway, books: Path) -> None:
    async with connected(gateway.service) as client:
        asked = await client.call_tool("clerk", {"task": f"refund {books} 500"})
        assert not asked.is_error
        assert (asked.meta or {})["cadre.dev/state"] == "waiting"
        run = run_of(asked)
        call = f"{run}_1_0"
        assert call in text_of(asked)
        for verdict in ("approved", "corrected"):
            refused = await client.call_tool("cadre_decide", {"call": call, "verdict": verdict})
            assert (refused.meta or {})["cadre.dev/error"] == "forbidden"
        assert not await asyncio.to_thread(books.exists)
        assert (await asyncio.to_thread(decide, gateway, call, "approved")).status_code == 200
        answer = await client.call_tool("cadre_get_run", {"run": run, "wait_seconds": 60})
        assert text_of(answer) == "refunded 500"
        assert done(books) == ["refund 500"]
        listed = await client.call_tool("cadre_list_runs", {"agent": "clerk"})
        assert run in [one["id"] for one in cast(dict[str, Any], listed.structured_content)["runs"]]
        ended = await client.call_tool("cadre_cancel_run", {"run": run})
        assert "had ended already" in text_of(ended)
        late = await client.call_tool("cadre_send_message", {"run": run, "text": "Stop."})
        assert "run-ended" in text_of(late)
        none = await client.call_tool("cadre_get_run", {"run": "nothing"})
        assert "unknown-run" in text_of(none)


# --- who may do what


def bearer(guarded: Service, *roles: str, **fields: Any) -> dict[str, str]:
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    wanted = {"name": "-".join(roles), "roles": roles, **fields}
    answer = httpx2.post(f"{guarded.url}/v1/keys", json=wanted, headers=admin, timeout=patience())
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def test_without_a_key_nobody_is_answered(stack: Stack, gateway: Gateway) -> None:
    guarded = stack.services["guarded"]
    answer = httpx2.post(f"{guarded.url}/mcp", json=CALL)
    assert answer.status_code == 401
    assert "bearer" in answer.headers["www-authenticate"].lower()


async def test_each_role_has_the_tools_that_it_may_use(stack: Stack, gateway: Gateway, books: Path) -> None:
    guarded, task = stack.services["guarded"], {"task": f"refund {books} 700"}
    async with connected(guarded, **bearer(guarded, "operator")) as operator:
        run = run_of(await operator.call_tool("clerk", task))
        call = {"call": f"{run}_1_0", "verdict": "approved"}
        assert "forbidden" in text_of(await operator.call_tool("cadre_decide", call))
    async with connected(guarded, **bearer(guarded, "viewer")) as viewer:
        assert {tool.name for tool in (await viewer.list_tools()).tools} == {
            "cadre_list_runs",
            "cadre_get_run",
        }
        assert "forbidden" in text_of(await viewer.call_tool("clerk", task))
        assert "forbidden" in text_of(await viewer.call_tool("cadre_cancel_run", {"run": run}))
    async with connected(guarded, **bearer(guarded, "operator", "approver", agents=["teller"])) as other:
        assert "clerk" not in {tool.name for tool in (await other.list_tools()).tools}
        assert "out-of-scope" in text_of(await other.call_tool("clerk", task))
        assert "unknown-run" in text_of(await other.call_tool("cadre_get_run", {"run": run}))
        assert "unknown-approval" in text_of(await other.call_tool("cadre_decide", call))
    async with connected(guarded, **bearer(guarded, "approver")) as approver:
        assert "cadre_decide" in {tool.name for tool in (await approver.list_tools()).tools}
        assert not (await approver.call_tool("cadre_decide", call)).is_error
        twice = await approver.call_tool("cadre_decide", {**call, "verdict": "rejected"})
        assert (twice.meta or {})["cadre.dev/error"] == "already-decided"
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    query = {"action": "mcp.call"}
    trail = httpx2.get(f"{guarded.url}/v1/audit", params=query, headers=admin, timeout=patience()).json()
    entry = [one for one in trail["entries"] if one["who"] == "approver"][-1]
    assert entry["detail"] == {"tool": "cadre_decide", **call}


async def test_runs_of_a_day_are_counted(stack: Stack, gateway: Gateway) -> None:
    guarded = stack.services["guarded"]
    async with connected(guarded, **bearer(guarded, "operator", runs_per_day=1)) as client:
        assert not (await client.call_tool("teller", {"task": "Ann"})).is_error
        assert "rate-limited" in text_of(await client.call_tool("teller", {"task": "Ann"}))
