"""The connection to an MCP server: what a busy server, and failures of HTTP, mean for it."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters.mcp import server as server_module
from cadre.adapters.mcp.rounds import McpToolError
from cadre.adapters.mcp.server import McpServer
from cadre.adapters.mcp.server_file import read_servers
from cadre.tool import ToolContext
from cadre.tools.decorator import CallInterrupted
from harness.nats_server import free_port
from harness.patience import patience, until
from integration.test_mcp import http_server

mcp_types = pytest.importorskip("mcp_types")
session_module = pytest.importorskip("cadre.adapters.mcp.session")

OLD_SERVER = str(Path(__file__).parent / "mcp_server_of_2025.py")


@contextlib.asynccontextmanager
async def connected(folder: Path, entry: dict[str, Any]) -> AsyncIterator[McpServer]:
    """The server of the entry, its tools listed."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"desk": {**entry, "cadre": {"prefix": ""}}}}))
    [spec] = read_servers(str(file))
    server, listed = McpServer(spec), asyncio.Event()

    async def renewed() -> None:
        listed.set()

    serving = asyncio.create_task(server.serve(renewed))
    try:
        await asyncio.wait_for(listed.wait(), patience())
        yield server
    finally:
        server.stop()
        await serving


async def test_nobody_says_that_it_is_ready_before_its_tools_are_announced(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": [OLD_SERVER], "env": {"FOLDER": str(tmp_path)}}
    file.write_text(json.dumps({"mcpServers": {"desk": entry}}))
    [spec] = read_servers(str(file))
    server, meanwhile = McpServer(spec), asyncio.Queue[str | None]()

    async def renewed() -> None:
        meanwhile.put_nowait(server.trouble)

    async def ready() -> bool:
        return server.trouble is None

    serving = asyncio.create_task(server.serve(renewed))
    try:
        assert await asyncio.wait_for(meanwhile.get(), patience()) is not None
        assert server.tools, "they are known, and not yet announced"
        assert await until(ready)
    finally:
        server.stop()
        await serving


async def call(server: McpServer, name: str, *, user: str = "") -> Any:
    [tool] = [one for one in server.tools if one.name == name]
    return await tool.call({}, ToolContext(call_id="c", run="r", tool=name, user=user))


async def test_a_server_that_is_busy_with_a_call_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = asyncio.Event()
    tools = session_module.McpSession.tools

    async def listing(session: Any) -> Any:
        try:
            return await tools(session)
        except TimeoutError:
            gone.set()
            raise

    async def blocks() -> bool | None:
        return (tmp_path / "blocks.txt").exists() or None

    entry = {"command": sys.executable, "args": [OLD_SERVER], "env": {"FOLDER": str(tmp_path)}}
    async with connected(tmp_path, entry) as server:
        monkeypatch.setattr(session_module, "_LISTING_SECONDS", 0.1)
        monkeypatch.setattr(session_module.McpSession, "tools", listing)
        asked = asyncio.create_task(call(server, "block"))
        session = server._session
        assert session is not None
        await until(blocks)
        # When it hears of a change it looks all the same, and finds no one who answers.
        session.changed.set()
        await asyncio.wait_for(gone.wait(), patience())
        assert not asked.done()
        monkeypatch.setattr(session_module, "_LISTING_SECONDS", patience())
        (tmp_path / "go").touch()
        assert await asked == "went"
        assert server._session is session


class Web:
    """A server of 2025 over HTTP, which fails where it is asked to."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        """Status by tool."""
        self.calls: list[str] = []
        self.methods: list[str] = []
        self.headers: list[httpx2.Headers] = []
        """Of the calls."""
        self.session = 1
        self.forgets_with = 404
        """The status for a session that it does not know; 400 is that of the reference server."""
        self.errors: dict[str, int] = {}
        """The code of the JSON-RPC error that it answers calls with, by tool."""
        self.results: dict[str, dict[str, Any]] = {}
        self.listed: dict[str, dict[str, Any]] = {"one": {}, "two": {}}
        """Further fields of its tools, by name."""
        self.cursor = ""
        """The cursor that every page of tools names as the next."""
        self.called, self.held = asyncio.Event(), asyncio.Event()

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return httpx2.Response(405)
        message = json.loads(request.content)
        method, params = message["method"], message.get("params", {})
        self.methods.append(method)
        own = {"mcp-session-id": str(self.session)}
        if method != "initialize" and request.headers.get("mcp-session-id") != own["mcp-session-id"]:
            unknown = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            status = self.forgets_with if "mcp-session-id" in request.headers else 400
            return httpx2.Response(status, json={"jsonrpc": "2.0", "error": unknown, "id": None})
        if "id" not in message:
            return httpx2.Response(202)
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            }
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}, **more} for name, more in self.listed.items()]
            result = {"tools": tools, **({"nextCursor": self.cursor} if self.cursor else {})}
        elif method == "tools/call":
            self.calls.append(params["name"])
            self.headers.append(request.headers)
            self.called.set()
            if params["name"] in self.failing:
                return httpx2.Response(self.failing[params["name"]], text="oh")
            if params["name"] in self.errors:
                refused = {"code": self.errors[params["name"]], "message": "the quota is used up"}
                return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "error": refused})
            if params["name"] == "two":
                await self.held.wait()
            result = {"content": [{"type": "text", "text": params["name"]}]} | self.results.get(params["name"], {})
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return httpx2.Response(200, json=body, headers=own if method == "initialize" else {})


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    web = Web()

    def client(endpoint: Any) -> httpx2.AsyncClient:
        made: httpx2.AsyncClient = session_module._HttpClient(transport=httpx2.MockTransport(web.answer))
        return made

    monkeypatch.setattr(session_module, "_http_client", client)
    return web


URL = {"url": "http://desk.test/mcp"}


async def test_one_call_that_fails_over_http_takes_no_other_along(tmp_path: Path, web: Web) -> None:
    async with connected(tmp_path, URL) as server:
        other = asyncio.create_task(call(server, "two"))
        await asyncio.wait_for(web.called.wait(), patience())
        web.failing["one"] = 503
        with pytest.raises(CallInterrupted, match="HTTP 503"):
            await call(server, "one")
        web.failing["one"] = 403
        with pytest.raises(McpToolError, match="HTTP 403"):
            await call(server, "one")
        web.held.set()
        assert await other == "two"
        assert web.calls == ["two", "one", "one"]


@pytest.mark.parametrize("status", [404, 400])
async def test_a_session_that_the_server_has_forgotten_is_begun_anew(tmp_path: Path, web: Web, status: int) -> None:
    web.forgets_with = status
    async with connected(tmp_path, URL) as server:
        web.session = 2
        assert await call(server, "one") == "one"
        assert web.calls == ["one"]


@pytest.mark.parametrize("code", [-32000, session_module.NOT_SENT, -32603])
async def test_an_error_of_the_server_is_no_lost_connection(tmp_path: Path, web: Web, code: int) -> None:
    web.errors["one"] = code
    async with connected(tmp_path, URL) as server:
        with pytest.raises(McpToolError, match="the quota is used up"):
            await call(server, "one")
        assert web.calls == ["one"]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({}, "one"),
        ({"structuredContent": {"n": "seven"}}, "one"),
        ({"structuredContent": {"n": "seven"}, "content": []}, '{"n": "seven"}'),
    ],
)
async def test_a_result_of_another_form_than_declared_is_given_as_text(
    tmp_path: Path, web: Web, result: dict[str, Any], told: str
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    web.listed["one"] = {"outputSchema": schema}
    web.results["one"] = result
    async with connected(tmp_path, URL) as server:
        first, note = (await call(server, "one")).split("\n", 1)
    assert first == told
    assert "one" in note
    assert web.calls == ["one"]


async def test_a_list_whose_cursor_does_not_advance_ends(tmp_path: Path, web: Web) -> None:
    web.cursor = "same"
    async with connected(tmp_path, URL) as server:
        assert [tool.name for tool in server.tools] == ["one", "two"]
    assert web.methods.count("tools/list") == 2


async def test_a_byte_that_is_not_utf_8_is_no_end_of_the_connection(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": [OLD_SERVER], "env": {"FOLDER": str(tmp_path)}}
    async with connected(tmp_path, entry) as server:
        assert await asyncio.wait_for(call(server, "garbled"), patience()) == "a \ufffd b"


@pytest.mark.parametrize("nobody", [httpx2.ConnectError("nobody is there"), httpx2.Response(503)], ids=str)
async def test_a_server_that_was_away_for_the_probe_is_not_taken_for_an_old_one(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, nobody: Exception | httpx2.Response
) -> None:
    answer, probes = web.answer, 0

    async def comes_late(request: httpx2.Request) -> httpx2.Response:
        nonlocal probes
        probes += request.headers.get("mcp-method") == "server/discover"
        if probes == 1 and request.headers.get("mcp-method") == "server/discover":
            if isinstance(nobody, Exception):
                raise nobody
            return nobody
        return await answer(request)

    monkeypatch.setattr(web, "answer", comes_late)
    async with connected(tmp_path, URL) as server:
        assert await call(server, "one") == "one"
    assert probes == 2
    assert [one for one in web.methods if one in ("server/discover", "initialize")] == [
        *("initialize", "server/discover", "initialize"),
    ]


async def test_a_server_that_answers_slowly_is_not_taken_for_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It speaks the protocols of both eras, and its answer to the question for them comes after it was asked to begin
    a session of the old one."""
    begun, methods = asyncio.Event(), []

    class Slow(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                methods.append(method := json.loads(await request.aread())["method"])
                if method == "initialize":
                    begun.set()
                elif method == "server/discover":
                    await begun.wait()
            return await super().handle_async_request(request)

    monkeypatch.setattr(session_module, "_http_client", lambda endpoint: session_module._HttpClient(transport=Slow()))
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)
    port = free_port()
    process = await http_server(port)
    try:
        async with connected(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}) as server:
            assert server._session is not None
            assert server._session.version == "2026-07-28"
            assert methods.count("server/discover") == methods.count("initialize") == 1
            [tool] = [one for one in server.tools if one.name == "add"]
            assert await tool.call({"a": 1, "b": 2}, ToolContext(call_id="c", run="r", tool="add")) == {"result": 3}
    finally:
        process.kill()
        await process.wait()


async def test_an_answer_that_breaks_off_is_taken_up_again_with_the_headers_of_its_run(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, taken_up = web.answer, []
    stream = {"content-type": "text/event-stream"}

    async def breaks_off(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" in request.headers:
            taken_up.append(request.headers)
            result = {"content": [{"type": "text", "text": "the rest"}]}
            told = json.dumps({"jsonrpc": "2.0", "id": asked[0], "result": result})
            return httpx2.Response(200, text=f"id: 2\ndata: {told}\n\n", headers=stream)
        message = json.loads(request.content) if request.method == "POST" else {}
        if message.get("method") == "tools/call":
            asked.append(message["id"])
            return httpx2.Response(200, text="id: 1\nretry: 1\ndata:\n\n", headers=stream)
        return await answer(request)

    asked: list[int] = []
    monkeypatch.setattr(web, "answer", breaks_off)
    (tmp_path / "ann").write_text("anns own token")
    headers = {"Authorization": "Bearer ${file:${run:user}}"}
    async with connected(tmp_path, {**URL, "headers": headers}) as server:
        assert await call(server, "one", user="ann") == "the rest"
    [told] = taken_up
    assert (told["authorization"], told["last-event-id"]) == ("Bearer anns own token", "1")
    assert told["mcp-session-id"] == "1"


async def test_requests_bear_the_headers_of_their_run(tmp_path: Path, web: Web) -> None:
    """Anyone who is named begins no path and no reference with it, and is no part of what errors tell."""
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "ann").write_text("anns own token\n")
    headers = {
        "Authorization": "Bearer ${file:tokens/${run:user}}",
        "X-Run": "${run:id} of ${run:user:-nobody}, ${run:session:-no session}",
    }
    async with connected(tmp_path, {**URL, "headers": headers}) as server:
        await call(server, "one", user="ann")
        [told] = web.headers
        assert (told["authorization"], told["x-run"]) == ("Bearer anns own token", "r of ann, no session")
        with pytest.raises(McpToolError, match=r"headers\.Authorization"):
            await call(server, "one")
        (tmp_path / "secret").write_text("not for ${PATH}")
        for user in ("bob", "../secret", "${PATH}", "x:-y"):
            with pytest.raises(McpToolError, match="cannot be read: No such file"):
                await call(server, "one", user=user)
        web.failing["one"] = 403
        (tmp_path / "tokens" / "eve").write_text("HTTP 403 Forb")
        with pytest.raises(McpToolError, match=r"^\*\*\*idden$"):
            await call(server, "one", user="eve")
    assert len(web.headers) == 2


async def test_a_server_that_cannot_be_reached_is_said_after_a_while(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "WAIT_SECONDS", 0.2)
    async with connected(tmp_path, URL) as server:

        async def refuse(request: httpx2.Request) -> httpx2.Response:
            raise httpx2.ConnectError("nobody is there")

        monkeypatch.setattr(web, "answer", refuse)
        monkeypatch.setattr(session_module._HttpClient, "_transport_for_url", lambda *_: httpx2.MockTransport(refuse))
        with pytest.raises(McpToolError, match="MCP server desk cannot be reached"):
            await call(server, "one")
        assert web.calls == []


async def test_a_call_that_waits_is_reason_to_try_at_once(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_PAUSES", (3600.0,))
    async with connected(tmp_path, URL) as server:
        answer = web.answer

        async def refuse(request: httpx2.Request) -> httpx2.Response:
            refused.set()
            raise httpx2.ConnectError("nobody is there")

        refused = asyncio.Event()
        monkeypatch.setattr(web, "answer", refuse)
        monkeypatch.setattr(
            session_module._HttpClient,
            "_transport_for_url",
            lambda *_: httpx2.MockTransport(lambda request: web.answer(request)),
        )
        asked = asyncio.create_task(call(server, "one"))
        await asyncio.wait_for(refused.wait(), patience())
        monkeypatch.setattr(web, "answer", answer)
        assert await asyncio.wait_for(asked, patience()) == "one"
