"""Keep an MCP server connected, and offer its tools as tools of Cadre: list them, call them, list them again when
they change, convert their results."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import posixpath
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from cadre.adapters.mcp.rounds import McpToolError, Rounds, ServerUnreachable, TaskUnknown, so_far
from cadre.adapters.mcp.server_file import (
    RUN_VALUES,
    CadreSection,
    Endpoint,
    OneTool,
    ServerSpec,
    ToolEffects,
)
from cadre.errors import CadreError, SetupError, ToolDefinitionError
from cadre.protocol.cards import ToolCard
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted, ToolOptions, check_options, make_card
from cadre.tools.files import File
from cadre.tools.foreign import ForeignTool

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents
    from mcp_types import Tool as ListedTool

    from cadre.adapters.mcp.session import McpSession, Progress

log = logging.getLogger("cadre.mcp")

T = TypeVar("T")

INSTALL = "MCP servers need the package mcp, which is not installed: pip install 'cadre-agents[mcp]'"

_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next try to connect."""
_URGENT_SECONDS = 1.0
"""The longest pause before the next try while a call waits for the server."""
_STEADY_SECONDS = 30.0
"""A session that lasted this long counts as a success: after its end the pauses start from the shortest again."""
_LOOK_SECONDS = 30.0
"""Between two listings of the tools, for servers that do not tell of changes, or are gone without a word."""
WAIT_SECONDS = 60.0
"""The time that a call waits for an absent server."""
_TRIES = 3
"""The number of times that a repeatable call is sent to a server that dies during it."""


class McpServer:
    """One server. `serve` keeps it connected, and `tools` are those of the last listing."""

    def __init__(self, spec: ServerSpec, tie: Sequence[str] = ()) -> None:
        """`tie` is put before the command of a server that is started here."""
        self.spec = spec
        self.tools: list[McpTool] = []
        self.trouble: str | None = "not connected yet"
        """The reason why it cannot be called now; None when it can."""
        self._tie = tie
        self._session: McpSession | None = None
        self._connected = asyncio.Event()
        self._stopping = asyncio.Event()
        self._endpoint: Endpoint | None = None
        self._calls = 0
        """At work now."""
        self._waiting = 0
        """Calls that wait for the server; `_wanted` is set while there are some."""
        self._wanted = asyncio.Event()

    async def list_tools(self) -> list[McpTool]:
        """Connect, list the tools and end the session again. Raises SetupError."""
        try:
            await self._once(None)
        except BaseExceptionGroup as group:
            raise SetupError(f"{self.spec.where}: {self._text(group)}") from group
        except (CadreError, OSError, TimeoutError, ValueError) as error:
            raise SetupError(f"{self.spec.where}: {self._text(error)}") from error
        return self.tools

    async def serve(self, renewed: Callable[[], Awaitable[None]]) -> None:
        """Keep the server connected until `stop`; `renewed` is awaited whenever its tools have changed."""
        tries = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                await self._once(renewed)
                self.trouble = "the connection ended"
            except Exception as error:
                self.trouble = self._text(error)
                log.debug("MCP server %s", self.spec.name, exc_info=error)
            if time.monotonic() - began >= _STEADY_SECONDS:
                tries = 0
            if not self._stopping.is_set():
                pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
                tries += 1
                log.warning("MCP server %s: %s; trying again in %g s", self.spec.name, self.trouble, pause)
                urgent = min(pause, _URGENT_SECONDS)
                await _wait_for_any(self._stopping, seconds=urgent)
                await _wait_for_any(self._stopping, self._wanted, seconds=pause - urgent)

    def stop(self) -> None:
        """End the session, and with it a server that was started here."""
        self._stopping.set()

    async def _once(self, renewed: Callable[[], Awaitable[None]] | None) -> None:
        """One session from its beginning to its end, or with `renewed` None to its first listing."""
        try:
            from cadre.adapters.mcp.session import open_session
        except ModuleNotFoundError as error:
            raise SetupError(INSTALL) from error
        self._endpoint = endpoint = self.spec.endpoint()
        async with open_session(endpoint, self._tie) as session:
            await self._list(session)
            if renewed is None:
                return
            log.info(
                "MCP server %s: protocol %s, tools: %s",
                *(self.spec.name, session.version, ", ".join(tool.name for tool in self.tools) or "none"),
            )
            self._session, self.trouble = session, "its tools are not announced yet"
            self._connected.set()
            try:
                await renewed()
                self.trouble = None
                await self._watch(session, renewed)
            finally:
                self._session = None
                self._connected.clear()

    async def _watch(self, session: McpSession, renewed: Callable[[], Awaitable[None]]) -> None:
        while True:
            await _wait_for_any(self._stopping, session.lost, session.changed, seconds=_LOOK_SECONDS)
            if self._stopping.is_set() or session.lost.is_set():
                return
            if self._calls and not session.changed.is_set():
                continue  # a server that works on a call may not be able to answer anything else
            session.changed.clear()
            before = [tool.card for tool in self.tools]
            try:
                await self._list(session)
            except TimeoutError:
                if not self._calls:
                    raise
                continue
            self._connected.set()
            if before != [tool.card for tool in self.tools]:
                log.info("MCP server %s: tools: %s", self.spec.name, ", ".join(tool.name for tool in self.tools))
                await renewed()

    async def _list(self, session: McpSession) -> None:
        tools = tools_of(self.spec, await session.tools(), self.call)
        reading = [resource_tool(self.spec, self.read)] if self.spec.entry.cadre.resources else []
        self.tools = [*tools, *(one for one in reading if one.name not in {tool.name for tool in tools})]

    def _text(self, error: BaseException) -> str:
        """Return the error in one line, without secrets."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = " ".join(str(error).split()) or type(error).__name__
        return self._endpoint.hide(text) if self._endpoint is not None else text

    # --- calls

    async def call(self, tool: McpTool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Have the server run the tool. Raises McpToolError, and CallInterrupted when it is unknown whether it did."""

        async def request(send: Callable[[McpSession], Awaitable[T]], *, may_repeat: bool = False) -> T:
            return await self._request(tool, context, send, may_repeat=may_repeat)

        rounds = Rounds(
            request,
            tool=tool.listed,
            arguments=arguments,
            meta=_meta(context),
            progress=_progress(context),
            timeout=tool.card.timeout,
        )
        resumes = context.resumes
        if resumes is None:
            result = await rounds.begin()
        else:
            call = so_far(resumes.state)
            if context.cleanup:
                await rounds.give_up(call)
                return None
            result = await rounds.go_on(call.asked(resumes.answer) if resumes.answer else call)
        if result.is_error:
            raise McpToolError(error_text(result))
        return value_of(result)

    async def read(self, tool: McpTool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Read a resource. Raises McpToolError."""
        result = await self._request(tool, context, lambda session: session.read(arguments["uri"]))
        return one_or_all([resource_value(resource) for resource in result.contents])

    async def _request(
        self,
        tool: McpTool,
        context: ToolContext,
        send: Callable[[McpSession], Awaitable[T]],
        *,
        may_repeat: bool = False,
    ) -> T:
        """Return the server's answer. A request that the server never got is sent again; one that it died in only if
        that does no harm."""
        from cadre.adapters.mcp.session import NotSent, Refused, SessionLost

        try:
            of_run = self.spec.headers_of_run(_run_values(context))
        except SetupError as error:
            raise McpToolError(str(error)) from error

        def text_of(error: BaseException) -> str:
            return of_run.hide(self._text(error))

        about_task, may_repeat = may_repeat, may_repeat or tool.card.read_only or tool.card.idempotent
        for left in reversed(range(_TRIES)):
            session = await self._wait_until_connected()
            self._calls += 1
            try:
                with session.for_run(of_run.headers):
                    return await send(session)
            except Refused as error:
                raise (TaskUnknown if about_task else McpToolError)(text_of(error)) from error
            except SessionLost as error:
                # Until the loop that keeps it connected has seen for itself.
                self._connected.clear()
                text = f"MCP server {self.spec.name}: {text_of(error)}"
                if not isinstance(error, NotSent) and not may_repeat:
                    raise CallInterrupted(text) from error
                if not left:
                    raise ServerUnreachable(f"{text}; tried {_TRIES} times") from error
                log.warning("call %s of %s is sent again: %s", context.call_id, tool.name, text)
            finally:
                self._calls -= 1
        raise AssertionError("the last try returns or raises")

    async def _wait_until_connected(self) -> McpSession:
        self._waiting += 1
        self._wanted.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._connected.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._wanted.clear()
        if self._session is None or not self._connected.is_set():
            raise ServerUnreachable(
                f"MCP server {self.spec.name} cannot be reached: {self.trouble or 'it does not answer'}"
            )
        return self._session


def _run_values(context: ToolContext) -> dict[str, str]:
    values = {"user": context.user, "session": context.session, "id": context.run, "tree": context.tree}
    assert values.keys() == RUN_VALUES
    return values


def _meta(context: ToolContext) -> dict[str, str]:
    """Return the metadata that a server gets with the call."""
    told = {"cadre.dev/call": context.call_id, "cadre.dev/run": context.run}
    return told | ({"traceparent": context.traceparent} if context.traceparent else {})


def _progress(context: ToolContext) -> Progress:
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        done = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        context.progress(f"{done} {json.dumps(message, ensure_ascii=False)}" if message else done)

    return tell


async def _wait_for_any(*events: asyncio.Event, seconds: float) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def value_of(result: CallToolResult) -> Any:
    """Return the structured content if there is any, else the text; pictures, sound and resources become files."""
    blocks = [_value(block) for block in result.content]
    if result.structured_content is None:
        texts = [value for value in blocks if isinstance(value, str)]
        return "\n".join(texts) if len(texts) == len(blocks) else one_or_all(blocks)
    # Its text is the same again, for clients that know nothing else.
    others = [value for value in blocks if not isinstance(value, str)]
    return {"result": result.structured_content, "content": others} if others else result.structured_content


def error_text(result: CallToolResult) -> str:
    """Return what the server says of a call that failed."""
    texts = [block.text for block in result.content if block.type == "text"]
    return "\n".join(texts) or "the server reports a failure and says nothing of it"


def one_or_all(values: list[Any]) -> Any:
    """Return the only value, or the list of them."""
    return values[0] if len(values) == 1 else values


def _value(block: ContentBlock) -> Any:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return File(base64.b64decode(block.data), media_type=block.mime_type)
        case "resource_link":
            about = {"uri": str(block.uri), "name": block.name, "description": block.description}
            return {key: text for key, text in about.items() if text}
    return resource_value(block.resource)


def resource_value(resource: TextResourceContents | BlobResourceContents) -> Any:
    """Return a text with its URI; anything else is a file."""
    if "text" in resource.model_fields_set:
        return {"uri": str(resource.uri), "text": getattr(resource, "text", "")}
    name = posixpath.basename(urlsplit(str(resource.uri)).path)
    return File(base64.b64decode(getattr(resource, "blob", "")), name=name, media_type=resource.mime_type or "")


MAX_NAME_CHARS = 64
_DIGEST_CHARS = 8
_READ_RESOURCE = "read_resource"

Caller = Callable[["McpTool", dict[str, Any], ToolContext], Awaitable[Any]]


class McpTool(ForeignTool):
    """A tool of an MCP server, as its server's last listing describes it."""

    def __init__(self, listed: str, card: ToolCard, concurrency: int | None, caller: Caller) -> None:
        super().__init__(_by_cadre_alone, card, concurrency)
        self.listed = listed
        """Its name at the server."""
        self.is_async = True
        self._caller = caller

    async def call(self, arguments: dict[str, Any], context: ToolContext | None = None) -> Any:
        """Have the server run the tool. Raises InvalidArguments, CallInterrupted and what the server says."""
        context = ToolContext() if context is None else context
        checked = arguments if context.cleanup and context.resumes else self._checked(arguments, [])
        return await self._caller(self, checked, context)


def _by_cadre_alone(**arguments: Any) -> Any:
    raise TypeError("a tool of an MCP server is called through its executor")


def name_for(listed: str, prefix: str) -> str:
    """Return the name of a tool for models: the prefix and its name at the server, in which `_` takes the place of each
    character that no name of Cadre has. A longer name than 64 ends with a digest of the whole."""
    name = prefix + re.sub(r"[^a-zA-Z0-9_-]", "_", listed)
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(f"{prefix}{listed}".encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def resource_tool(spec: ServerSpec, caller: Caller) -> McpTool:
    """Return the tool that reads resources of the server."""
    uri = {"type": "string", "description": "The URI as a result of a tool or a text names it."}
    card = ToolCard(
        name=name_for(_READ_RESOURCE, spec.prefix),
        description=f"Reads a resource of the server {spec.name}: a text, or a file.",
        input_schema={"type": "object", "properties": {"uri": uri}, "required": ["uri"]},
        read_only=True,
        timeout=spec.entry.cadre.timeout,
        approval=spec.entry.cadre.approval or "",
        labels={"mcp": spec.name},
    )
    return McpTool(_READ_RESOURCE, card, spec.entry.cadre.concurrency, caller)


def tools_of(spec: ServerSpec, listing: Iterable[ListedTool], caller: Caller) -> list[McpTool]:
    """Return the tools that the file lets through. One that cannot be offered as the file demands is left out with a
    warning; of two with one name for models, the one that has it at the server stays."""
    found: dict[str, McpTool] = {}
    for listed in sorted(listing, key=lambda one: name_for(one.name, spec.prefix) != spec.prefix + one.name):
        if not spec.allows(listed.name):
            continue
        try:
            tool = _tool(spec, listed, caller)
        except (ToolDefinitionError, ValueError) as error:
            log.warning("%s: tool %s is not offered: %s", spec.where, listed.name, str(error).splitlines()[0])
            continue
        other = found.setdefault(tool.name, tool)
        if other is not tool:
            log.warning(
                "%s: tool %s is not offered: %s is called %s already; name it in the file (cadre.tools)",
                *(spec.where, listed.name, other.listed, tool.name),
            )
    return sorted(found.values(), key=lambda tool: tool.name)


def _tool(spec: ServerSpec, listed: ListedTool, caller: Caller) -> McpTool:
    if listed.execution is not None and listed.execution.task_support == "required":
        raise ToolDefinitionError("it can only be called as a task of the protocol of 2025, which Cadre does not do")
    section = spec.entry.cadre
    own = section.tools.get(listed.name, OneTool())
    name = own.name or name_for(listed.name, spec.prefix)
    options = _options(section, own, listed)
    where = f"{spec.where}: {listed.name}"
    plain = ToolCard(
        name=name,
        description=own.description or listed.description or listed.title or listed.name,
        input_schema=listed.input_schema,
        output_schema=listed.output_schema,
        labels={"mcp": spec.name},
    )
    card = make_card(plain, check_options(options, name, where), where)
    return McpTool(listed.name, card, options.get("concurrency"), caller)


def _options(section: CadreSection, own: OneTool, listed: ListedTool) -> ToolOptions:
    """Return what the file says of the tool, of the server, then what a trusted server says."""
    options: ToolOptions = {}
    hints = listed.annotations if section.trust else None
    if hints is not None:
        options["read_only"] = bool(hints.read_only_hint)
        options["idempotent"] = bool(hints.idempotent_hint)
        if hints.destructive_hint and not hints.read_only_hint:
            options["approval"] = "always"
    for said in (section, own):
        for key in ToolEffects.__struct_fields__:
            if (value := getattr(said, key)) is not None:
                options[key] = value  # type: ignore[literal-required]
    if own.approval_text:
        options["approval_text"] = own.approval_text
    return options
