"""Ask an MCP server for its protocol versions, and wait for a slow answer.

The package `mcp` waits less long, and then takes a slow server for one from before 2026."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import mcp_types
import pydantic
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

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
        """Takes note of a message to the server."""
        request = message.message
        if not isinstance(request, mcp_types.JSONRPCRequest):
            return
        if request.method == PROBE:
            self._asked.add(request.id)
        elif request.method == "initialize":
            self._was_given_up = bool(self._asked)

    def received(self, item: object) -> None:
        """Takes note of what has come from the server."""
        message = getattr(item, "message", None)
        if (
            isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError)
            and message.id in self._asked
        ):
            self._asked.remove(message.id)
            self._answer = getattr(message, "result", None)
            self._answered.set()

    async def late_answer(self) -> mcp_types.DiscoverResult | None:
        """The answer that the package did not wait for; None where there is none, or one of a server of before 2026."""
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
    """The newest version of the protocol of 2026 that both sides speak."""
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
        return item

    async def __aenter__(self) -> WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)
