"""Hold one session with an MCP server over stdio or streamable HTTP: its versions asked for, its slow answers waited
for, its extension for tasks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, TextIO, TypeVar, cast

import httpx2
import mcp_types
import pydantic
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.inbound import MCP_METHOD_HEADER
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CallToolResult, Request, RequestParams, Result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from cadre.adapters.http_options import http_options
from cadre.adapters.mcp.server_file import Endpoint
from cadre.errors import CadreError


class ServersTask(Result):
    """A task of the server, with its answer once there is one."""

    result_type: Literal["task"] | Literal["complete"] = "complete"
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class BegunTask(Result):
    """The answer to a call that continues as a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: float | None = None


class TaskRequestParams(RequestParams):
    """The parameters of requests about a task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskRequestParams, str]):
    """A request about a task."""

    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Declares that calls may be answered with tasks."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the one result that it adds; the caller of a tool continues with it."""
        return (ResultClaim(result_type="task", model=BegunTask, resolve=_not_here),)


async def _not_here(begun: BegunTask, context: ClaimContext) -> CallToolResult:
    raise NotImplementedError(f"task {begun.task_id} of {context.tool_name} is awaited by its caller")


log = logging.getLogger("cadre.mcp")
errors_log = logging.getLogger("cadre.mcp.stderr")

NOT_SENT = -32097
"""Code of an error made here: the request never reached the server."""
_LOST = (NOT_SENT, mcp_types.CONNECTION_CLOSED)
_MADE_HERE = secrets.token_hex(8)
"""Marks errors with these codes that are made here: servers have their own errors with the same codes."""

_CONNECT_SECONDS = 120.0
"""For a server to answer for the first time: some are downloaded then."""
_LISTING_SECONDS = 60.0
_MOST_LINE_BYTES = 64 * 1024
_LAST_LINES_SECONDS = 1.0
"""For what has inherited the stderr of a server's process to end, behind it."""
_HTTP_SECONDS = 30.0
_SILENCE_SECONDS = 300.0
"""After which an HTTP response that says nothing, not even that it is alive, counts as lost."""
_MAX_PAGES = 100
_LISTEN_AGAIN_SECONDS = 5.0
_MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Of one answer over HTTP, with the pictures in it: they are held to the bounds of files afterwards."""
_SESSION_HEADER = "mcp-session-id"
_LAST_EVENT_HEADER = "last-event-id"
_request_headers: ContextVar[Mapping[str, str]] = ContextVar("mcp_headers_of_request")
"""Headers of the request whose answer this task reads."""
_AWAY = (502, 503, 504)
"""Statuses of a proxy with no server behind it."""

Progress = ProgressFnT


R = TypeVar("R", bound=mcp_types.Result)
CallAnswer = mcp_types.CallToolResult | mcp_types.InputRequiredResult | BegunTask

_INITIALIZE = "initialize"

_of_run: ContextVar[Mapping[str, str]] = ContextVar("mcp_headers_of_run")


class SessionLost(CadreError):
    """The connection ended before the server answered: what came of the request is not known."""


class NotSent(SessionLost):
    """The request did not reach the server."""


class Refused(CadreError):
    """The server answers the request with an error of the protocol."""


class McpSession:
    """A session that is open. `lost` is set when it ended, `changed` when its tools are to be listed again."""

    def __init__(self, client: Client, lost: asyncio.Event, changed: asyncio.Event) -> None:
        self._client = client
        self.lost = lost
        self.changed = changed
        self._check = client.session.validate_tool_result
        # The package would throw away the result of a call that was made, where it does not fit.
        client.session.validate_tool_result = self._take_result  # type: ignore[method-assign]

    @property
    def version(self) -> str:
        """Return the version of the protocol that was agreed on."""
        return self._client.protocol_version

    async def _take_result(self, name: str, result: CallToolResult) -> None:
        """Take a result that does not fit the schema of its tool as text, with a note that says so."""
        try:
            await self._check(name, result)
        except RuntimeError as error:
            texts = [f"{name} has not given the data that it declares: {error}"]
            if result.structured_content is not None and not any(one.type == "text" for one in result.content):
                texts.insert(0, json.dumps(result.structured_content, ensure_ascii=False))
            result.structured_content = None
            result.content += [mcp_types.TextContent(type="text", text=text) for text in texts]

    async def tools(self) -> list[mcp_types.Tool]:
        """Return all tools of the server, each once. Raise SessionLost, Refused, TimeoutError."""
        found: dict[str, mcp_types.Tool] = {}
        cursor: str | None = None
        seen = set[str | None]()
        async with asyncio.timeout(_LISTING_SECONDS):
            for _ in range(_MAX_PAGES):
                with self._errors():
                    page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
                found |= {tool.name: tool for tool in page.tools}
                seen.add(cursor)
                cursor = page.next_cursor
                if cursor is None or cursor in seen:
                    break
        return list(found.values())

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        meta: dict[str, str],
        progress: Progress,
        answers: dict[str, Any] | None = None,
        state: str | None = None,
    ) -> CallAnswer:
        """Have the tool run; when cancelled, inform the server. Answers and state are those of a call that the server
        has asked questions about. Raises SessionLost, NotSent, Refused."""

        async def send() -> Any:
            return await self._client.session.call_tool(
                tool,
                arguments,
                progress_callback=progress,
                meta=cast(mcp_types.RequestParamsMeta, meta),
                input_responses=cast(Any, answers),
                request_state=state,
                allow_input_required=True,
                allow_claimed=True,
            )

        with self._errors():
            try:
                found = await send()
            except MCPError as error:
                if error.code != mcp_types.HEADER_MISMATCH:
                    raise
                # The server has another schema of the tool than the one that was listed.
                await self._client.list_tools(cache_mode="refresh")
                found = await send()
        return cast(CallAnswer, found)

    async def task(self, task: str) -> ServersTask:
        """Return how the task is. Raise SessionLost, Refused."""
        return await self._about("tasks/get", task, ServersTask)

    async def update_task(self, task: str, answers: dict[str, Any]) -> None:
        """Tell the task what people have said. Raises SessionLost, Refused."""
        await self._about("tasks/update", task, mcp_types.Result, answers)

    async def cancel_task(self, task: str) -> None:
        """Have the task ended. Raises SessionLost, Refused."""
        await self._about("tasks/cancel", task, mcp_types.Result)

    async def _about(self, method: str, task: str, answer: type[R], answers: dict[str, Any] | None = None) -> R:
        request = TaskRequest(method=method, params=TaskRequestParams(task_id=task, input_responses=answers))
        with self._errors():
            return await self._client.session.send_request(request, answer)

    async def read(self, uri: str) -> mcp_types.ReadResourceResult:
        """Read a resource. Raises SessionLost, NotSent, Refused."""
        with self._errors():
            return await self._client.read_resource(uri)

    @contextlib.contextmanager
    def for_run(self, headers: Mapping[str, str]) -> Iterator[McpSession]:
        """The session for requests that bear these headers over HTTP."""
        with headers_of_run(headers):
            yield self

    async def listen(self) -> None:
        """Listen for changes to the tools as servers of 2026 announce them, for as long as the session lasts."""
        with contextlib.suppress(ListenNotSupportedError, MCPError, TimeoutError):
            while True:
                with contextlib.suppress(SubscriptionLost):
                    async with self._client.listen(tools_list_changed=True) as events:
                        async for _ in events:
                            self.changed.set()
                # Changes announced in the meantime were missed; listing also shows whether the server is still there.
                self.changed.set()
                await asyncio.sleep(_LISTEN_AGAIN_SECONDS)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except MCPError as error:
            if error.code not in _LOST:
                raise Refused(error.message) from error
            # Over HTTP only this one request may be lost: listing the tools again shows it.
            self.changed.set()
            raise (NotSent if error.code == NOT_SENT else SessionLost)(error.message) from error
        except pydantic.ValidationError as error:
            where = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
            raise Refused(f"the server's answer is not of the protocol: {where}") from error


@contextlib.asynccontextmanager
async def open_session(endpoint: Endpoint, tie: Sequence[str] = ()) -> AsyncIterator[McpSession]:
    """Connect to the server, or start it and end it with the session; `tie` is put before its command.

    Raises Refused, SessionLost, TimeoutError, OSError.
    """
    known: mcp_types.DiscoverResult | None = None
    while True:
        async with _connected(endpoint, tie, known) as (client, lost, changed, probe):
            if known is None and client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
                known = await probe.late_answer()
                if known is not None:
                    log.info("%s answers slowly: it speaks the protocol of 2026", endpoint.hide(_place(endpoint)))
                    continue
            session = McpSession(client, lost, changed)
            listening = asyncio.create_task(session.listen(), name="mcp listen")
            try:
                yield session
            finally:
                listening.cancel()
            return


@contextlib.asynccontextmanager
async def _connected(
    endpoint: Endpoint, tie: Sequence[str], known: mcp_types.DiscoverResult | None
) -> AsyncIterator[tuple[Client, asyncio.Event, asyncio.Event, VersionProbe]]:
    """A connection, its `lost` and `changed`, and the question for versions, which is not asked where its answer is
    `known`."""
    lost, changed, probe = asyncio.Event(), asyncio.Event(), VersionProbe()

    async def on_message(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            changed.set()

    async with contextlib.AsyncExitStack() as stack:
        if endpoint.url:
            http = await stack.enter_async_context(_http_client(endpoint))
            transport: Any = streamable_http_client(endpoint.url, http_client=http, max_sse_event_size=_MAX_EVENT_BYTES)
            ended = _nothing
        else:
            errors = await stack.enter_async_context(_logged_errors(endpoint))
            http, transport, ended = None, stdio_client(_process(endpoint, tie), errors), lost.set
        client = Client(
            _watched(transport, probe, ended),
            message_handler=on_message,
            elicitation_callback=_refuse_in_call,
            extensions=[TasksExtension()],
            cache=None,
            mode="auto" if known is None else newest(known) or "auto",
            prior_discover=known,
        )
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await stack.enter_async_context(client)
        except MCPError as error:
            raise Refused(error.message) from error
        if http is not None and http.missed_probe and client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            raise NotSent("it was not there when it was asked which versions of the protocol it speaks")
        yield client, lost, changed, probe


class _ErrorLines(asyncio.Protocol):
    """Logs what a server writes to stderr, line by line."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._begun = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._say(line)
        if len(self._begun) > _MOST_LINE_BYTES:
            self._say(self._begun)
            self._begun = b""

    def connection_lost(self, error: Exception | None) -> None:
        self._say(self._begun)
        self.ended.set_result(None)

    def _say(self, line: bytes) -> None:
        if text := self._endpoint.hide(line.decode(errors="replace").rstrip()):
            name = self._endpoint.name
            errors_log.info("%s: %s", name, text, extra={"fields": {"mcp_server": name}})


@contextlib.asynccontextmanager
async def _logged_errors(endpoint: Endpoint) -> AsyncIterator[TextIO]:
    """A file whose lines are logged, for the stderr of a server's process."""
    reading, writing = os.pipe()
    lines = _ErrorLines(endpoint)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: lines, os.fdopen(reading, "rb", 0))
    try:
        with os.fdopen(writing, "w") as file:
            yield file
    finally:
        # Its process has ended: what it wrote last is still to be read.
        await asyncio.wait([lines.ended], timeout=_LAST_LINES_SECONDS)
        transport.close()


def _nothing() -> None:
    """Ignore the end of a stream over HTTP: only single requests are lost."""


def _place(endpoint: Endpoint) -> str:
    return endpoint.url or " ".join(endpoint.command)


@contextlib.asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[Any], probe: VersionProbe, ended: Callable[[], None]
) -> AsyncIterator[Any]:
    async with transport as (read, write):
        yield WatchedStream(read, probe.received, ended), Outgoing(write, probe.sent)


async def _refuse_in_call(context: ClientRequestContext, params: mcp_types.ElicitRequestParams) -> mcp_types.ErrorData:
    """Refuse a question within a call. Without this function the package does not declare to servers of 2026 that they
    may ask; an older server, which learns that it may not, asks all the same."""
    text = "elicitation was not declared: questions are answered to servers that speak the protocol of 2026-07-28"
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=text)


def _process(endpoint: Endpoint, tie: Sequence[str]) -> StdioServerParameters:
    environment = get_default_environment() | endpoint.env
    command = [*tie, *endpoint.command]
    return StdioServerParameters(
        command=command[0],
        args=command[1:],
        env=environment,
        cwd=endpoint.folder,
        encoding_error_handler="replace",  # one wrong byte would end the reading, and every call wait in vain
    )


# --- HTTP


class _HttpClient(httpx2.AsyncClient):
    """Turns failures of one request into its JSON-RPC error: the package would end the whole session over them."""

    missed_probe = False
    """True if nothing answered the question which versions of the protocol the server speaks. It need not be an old
    server, although the package assumes that it is."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            # A stream that broke off is taken up again in the task that has begun it.
            request.headers.update(_request_headers.get({}) if _LAST_EVENT_HEADER in request.headers else {})
            return await super().send(request, **options)
        _request_headers.set({name: text for name, text in request.headers.items() if not _is_protocols(name)})
        is_probe = request.headers.get(MCP_METHOD_HEADER) == PROBE
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            self.missed_probe |= is_probe
            return _failed(request, NOT_SENT, f"cannot connect: {error}")
        except httpx2.TransportError as error:
            text = f"the connection failed: {type(error).__name__} {error}"
            return _failed(request, mcp_types.CONNECTION_CLOSED, text)
        self.missed_probe |= is_probe and response.status_code in _AWAY
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        if response.status_code == 400 and is_json and _SESSION_HEADER in request.headers:
            await response.aread()
            if _names_no_request(response):
                return _failed(request, NOT_SENT, "the server does not take messages of the session any more")
        if response.status_code < 400 or (is_json and response.status_code != 404):
            return response
        if response.status_code == 404 and _SESSION_HEADER not in request.headers:
            return response  # how a server of another era says that it does not know a method
        await response.aclose()
        text = f"HTTP {response.status_code} {response.reason_phrase}"
        if response.status_code == 404:
            return _failed(request, NOT_SENT, "the server does not know the session any more")
        is_lost = response.status_code >= 500
        return _failed(request, mcp_types.CONNECTION_CLOSED if is_lost else mcp_types.INTERNAL_ERROR, text)


def _names_no_request(response: httpx2.Response) -> bool:
    """Return whether a JSON-RPC error is about no request: the server has not looked at the one that was sent."""
    try:
        told = response.json()
    except ValueError:
        return False
    return isinstance(told, dict) and "error" in told and told.get("id") is None


def _is_protocols(header: str) -> bool:
    """Return whether the header says something of one request, so that another one has its own."""
    return header in ("accept", "host", "connection") or header.startswith(("content-", "mcp-"))


def _failed(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    about = {"code": code, "message": message.strip(), "data": _MADE_HERE}
    error = {"jsonrpc": "2.0", "id": None, "error": about}
    return httpx2.Response(502, json=error, request=request)


def _http_client(endpoint: Endpoint) -> _HttpClient:
    timeout = httpx2.Timeout(_HTTP_SECONDS, read=_SILENCE_SECONDS)
    return _HttpClient(headers=endpoint.headers, timeout=timeout, **http_options(endpoint.url))


@contextlib.contextmanager
def headers_of_run(headers: Mapping[str, str]) -> Iterator[None]:
    """Have the requests that are sent in the block bear these headers."""
    token = _of_run.set(headers)
    try:
        yield
    finally:
        _of_run.reset(token)


class Outgoing:
    """The stream of what is sent to a server."""

    def __init__(self, stream: Any, sent: Callable[[SessionMessage], None]) -> None:
        """`sent` hears of each message."""
        self._stream = stream
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Outgoing:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    async def send(self, message: SessionMessage) -> None:
        """Send the message as it is to arrive."""
        _declare_what_is_done(message)
        headers, told = _of_run.get({}), message.metadata
        if headers and not isinstance(told, ClientMessageMetadata):
            message = replace(message, metadata=ClientMessageMetadata(headers=dict(headers)))
        elif headers and isinstance(told, ClientMessageMetadata):
            message = replace(message, metadata=replace(told, headers={**(told.headers or {}), **headers}))
        self._sent(message)
        await self._stream.send(message)


def _declare_what_is_done(message: SessionMessage) -> None:
    """The package declares all of elicitation as soon as there is an answer to any. Servers from before 2026 ask within
    the call, which cannot stay open until a person is there; and the URL of a question is never opened."""
    params: dict[str, Any] = getattr(message.message, "params", None) or {}
    if getattr(message.message, "method", "") == _INITIALIZE:
        params["capabilities"].pop("elicitation", None)
    declared = params.get("_meta", {}).get(CLIENT_CAPABILITIES_META_KEY, {})
    declared.get("elicitation", {}).pop("url", None)


PROBE = "server/discover"
_LATE_SECONDS = 20.0
"""Beyond the 10 s of the package; a server that answers no question that it does not know is waited for in vain."""


class VersionProbe:
    """Sees the question leave and its answer come."""

    def __init__(self) -> None:
        self._asked: set[object] = set()
        """Ids of the requests that nothing was said to."""
        self._was_given_up = False
        """A session of before 2026 was begun without its answer."""
        self._answered = asyncio.Event()
        self._answer: object = None

    def sent(self, message: SessionMessage) -> None:
        """Take note of a message to the server."""
        request = message.message
        if not isinstance(request, mcp_types.JSONRPCRequest):
            return
        if request.method == PROBE:
            self._asked.add(request.id)
        elif request.method == "initialize":
            self._was_given_up = bool(self._asked)

    def received(self, item: object) -> None:
        """Take note of what has come from the server."""
        message = getattr(item, "message", None)
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError) and message.id in self._asked:
            self._asked.remove(message.id)
            self._answer = getattr(message, "result", None)
            self._answered.set()

    async def late_answer(self) -> mcp_types.DiscoverResult | None:
        """Return the answer that the package did not wait for; None if it is missing or from a server from before
        2026."""
        if not self._was_given_up:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LATE_SECONDS):
                await self._answered.wait()
        try:
            found = mcp_types.DiscoverResult.model_validate(self._answer)
        except pydantic.ValidationError:
            return None
        return found if newest(found) is not None else None


def newest(known: mcp_types.DiscoverResult) -> str | None:
    """Return the newest version of the protocol of 2026 that both sides speak."""
    both = [version for version in MODERN_PROTOCOL_VERSIONS if version in known.supported_versions]
    return both[-1] if both else None


class WatchedStream:
    """The stream of a server, which reports each piece and the end."""

    def __init__(self, stream: Any, came: Callable[[object], None], ended: Callable[[], None]) -> None:
        self._stream = stream
        self._came = came
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except BaseException:
            self._ended()
            raise
        self._came(item)
        message = getattr(item, "message", None)
        error = message.error if isinstance(message, mcp_types.JSONRPCError) else None
        if error is not None and error.code in _LOST and error.data != _MADE_HERE:
            error.code = mcp_types.INTERNAL_ERROR
        return item

    async def __aenter__(self) -> WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)
