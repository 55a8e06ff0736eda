"""One process of a program, spoken to by the Agent Client Protocol: the only module that imports the package `acp`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

import acp
from acp.exceptions import RequestError
from acp.helpers import image_block, resource_link_block, text_block
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    EnvVariable,
    HttpHeader,
    HttpMcpServer,
    Implementation,
    McpServerStdio,
    RequestPermissionResponse,
)
from acp.transports import default_environment

from cadre.adapters import die_with_parent
from cadre.adapters.mcp.server_file import Endpoint
from cadre.errors import CadreError

Json = dict[str, Any]
T = TypeVar("T")

_ANSWER_SECONDS = 120.0
"""For everything but a prompt: some programs fetch what they need at their first start."""
_STOP_SECONDS = 2.0
_LINE_BYTES = 50 * 1024 * 1024
_SHOWN_LINES = 8
_AUTH_REQUIRED = -32000


class ProgramDied(CadreError):
    """Its process has ended, or does not speak any more."""


class ProgramRefused(CadreError):
    """It answers with an error."""


class ProgramListener(NamedTuple):
    """The receiver of what the program sends."""

    updated: Callable[[Json], None]
    asked: Callable[[Json, list[Json]], Awaitable[str | None]]
    """A permission and the options for it; returns the id of one of these, or None when the prompt was cancelled."""


class _Ears:
    """The client's side of the protocol: neither its files nor its terminals are offered."""

    def __init__(self, client: ProgramListener) -> None:
        self._client = client
        self.is_deaf = False
        """True while a session is loaded, which sends all its past updates again."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if not self.is_deaf:
            self._client.updated(update.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        asked, choices = ([one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in some]
                          for some in ([tool_call], options))  # fmt: skip
        chosen = await self._client.asked(asked[0], choices)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))


class ProgramTurn(NamedTuple):
    """The end of a prompt."""

    stop: str
    tokens: tuple[int, int] | None
    """Input and output tokens of the session, as far as the program reports them."""


class Program:
    """A program that has said what it can do."""

    def __init__(self, connection: Any, ears: _Ears, errors: asyncio.Task[Sequence[str]]) -> None:
        """`errors` ends with the process, and gives the last lines of what that wrote to stderr."""
        self._connection = connection
        self._ears = ears
        self._errors = errors
        self._about: Any = None

    async def introduce(self) -> None:
        """Raise ProgramDied, ProgramRefused."""
        self._about = await self._ask(
            self._connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_info=Implementation(name="cadre", title="Cadre", version="1"),
            )
        )
        if self._about.protocol_version != acp.PROTOCOL_VERSION:
            raise ProgramRefused(
                f"it speaks version {self._about.protocol_version} of the Agent Client Protocol, and Cadre"
                f" version {acp.PROTOCOL_VERSION}"
            )

    @property
    def reopens(self) -> Literal["", "load", "resume"]:
        """Return how it opens a session again."""
        able = self._about.agent_capabilities
        if able is None:
            return ""
        if able.load_session:
            return "load"
        knows = able.session_capabilities
        return "resume" if knows is not None and knows.resume is not None else ""

    @property
    def sees_images(self) -> bool:
        """Return whether a prompt may hold images; else it gets links to them, as to other files."""
        able = self._about.agent_capabilities
        return able is not None and able.prompt_capabilities is not None and able.prompt_capabilities.image

    async def begin(self, folder: str, servers: Sequence[tuple[str, Endpoint]]) -> str:
        """Return the id of a new session. Raises ProgramDied, ProgramRefused."""
        made = await self._ask(self._connection.new_session(cwd=folder, mcp_servers=self._servers(servers)))
        session: str = made.session_id
        return session

    async def reopen(self, how: str, session: str, folder: str, servers: Sequence[tuple[str, Endpoint]]) -> None:
        """Open a session of an earlier process. Raises ProgramDied, ProgramRefused."""
        verb = self._connection.resume_session if how == "resume" else self._connection.load_session
        self._ears.is_deaf = True
        try:
            await self._ask(verb(cwd=folder, session_id=session, mcp_servers=self._servers(servers)))
        finally:
            self._ears.is_deaf = False

    async def prompt(self, session: str, blocks: list[Json]) -> ProgramTurn:
        """Have it work until it stops. Raises ProgramDied, ProgramRefused."""
        sent = [self._block(block) for block in blocks]
        turn = await self._ask(self._connection.prompt(session_id=session, prompt=sent), None)
        used = turn.usage
        return ProgramTurn(turn.stop_reason, (used.input_tokens, used.output_tokens) if used is not None else None)

    async def cancel(self, session: str) -> None:
        """Tell it to stop. Raises ProgramDied."""
        await self._ask(self._connection.cancel(session_id=session))

    def _block(self, block: Json) -> Any:
        if block["type"] == "text":
            return text_block(block["text"])
        kind, uri = block["media_type"], block["uri"]
        if kind.startswith("image/") and self.sees_images:
            file = Path(unquote(urlsplit(uri).path, errors="surrogateescape"))
            return image_block(b64encode(file.read_bytes()).decode(), kind)
        return resource_link_block(block["name"], uri, mime_type=kind)

    def _servers(self, servers: Sequence[tuple[str, Endpoint]]) -> list[Any]:
        able = self._about.agent_capabilities
        found: list[Any] = []
        for name, endpoint in servers:
            if not endpoint.url:
                env = [EnvVariable(name=key, value=value) for key, value in endpoint.env.items()]
                first, *rest = endpoint.command
                found.append(McpServerStdio(name=name, command=first, args=rest, env=env))
            elif able is None or able.mcp_capabilities is None or not able.mcp_capabilities.http:
                raise ProgramRefused(f"it takes no MCP server by HTTP, as {name!r} is")
            else:
                headers = [HttpHeader(name=key, value=value) for key, value in endpoint.headers.items()]
                found.append(HttpMcpServer(type="http", name=name, url=endpoint.url, headers=headers))
        return found

    async def _ask(self, request: Awaitable[T], seconds: float | None = _ANSWER_SECONDS) -> T:
        asking = asyncio.ensure_future(request)
        try:
            either: set[asyncio.Future[Any]] = {asking, self._errors}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._errors.done():
                # What it has said before its end may still be on its way.
                await asyncio.wait({asking}, timeout=_STOP_SECONDS)
            if asking.done():
                return asking.result()
        except ConnectionError:
            pass
        except RequestError as error:
            hint = ""
            if error.code == _AUTH_REQUIRED:
                hint = ": sign in with it by hand, or give it a key under `environment`"
            raise ProgramRefused(f"{error}{f' {error.data}' if error.data else ''}{hint}") from error
        finally:
            asking.cancel()
        await asyncio.wait({self._errors}, timeout=_STOP_SECONDS)
        if not self._errors.done() and seconds is not None and not asking.done():
            raise ProgramRefused(f"it has not answered for {seconds:g} s")
        words = " / ".join(self._errors.result()) if self._errors.done() else "it has closed its output"
        raise ProgramDied(f"its process has ended{words and f': {words}'}")


@contextlib.asynccontextmanager
async def open_program(
    command: Sequence[str], environment: dict[str, str], folder: Path, client: ProgramListener
) -> AsyncIterator[Program]:
    """Start the program, which ends with the block, with this process, or when it is killed. Raises OSError,
    ProgramDied, ProgramRefused."""
    tie = [sys.executable, "-I", str(die_with_parent.__file__), str(os.getpid())]
    process = await asyncio.create_subprocess_exec(
        *tie,
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=default_environment() | environment,
        cwd=folder,
        limit=_LINE_BYTES,
        start_new_session=True,
    )
    errors = asyncio.create_task(_watch(process))
    ears = _Ears(client)
    connection = acp.connect_to_agent(cast(acp.Client, ears), process.stdin, process.stdout)
    try:
        program = Program(connection, ears, errors)
        await program.introduce()
        yield program
    finally:
        await connection.close()
        await _stop(process)
        errors.cancel()


async def _watch(process: asyncio.subprocess.Process) -> Sequence[str]:
    """Return the last lines that it wrote to stderr, once its process has ended."""
    tail: deque[str] = deque(maxlen=_SHOWN_LINES)

    async def keep(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            if text := line.decode(errors="replace").strip():
                tail.append(text[:500])

    assert process.stderr is not None
    reading = asyncio.create_task(keep(process.stderr))
    try:
        await process.wait()
        # What it has started may keep stderr open.
        await asyncio.wait({reading}, timeout=_STOP_SECONDS)
    finally:
        reading.cancel()
    return tail


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the process and what it has started: by the end of its input, then by signals."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
