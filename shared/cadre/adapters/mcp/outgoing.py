"""Messages on their way to an MCP server: they declare what is really done, and bear the headers of their run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY

_INITIALIZE = "initialize"

_of_run: ContextVar[Mapping[str, str]] = ContextVar("mcp_headers_of_run")


@contextlib.contextmanager
def headers_of_run(headers: Mapping[str, str]) -> Iterator[None]:
    """Has the requests that are sent in the block bear these headers."""
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
        """Sends the message as it is to arrive."""
        _declare_what_is_done(message)
        headers, told = _of_run.get({}), message.metadata
        if headers and not isinstance(told, ClientMessageMetadata):
            message = replace(message, metadata=ClientMessageMetadata(headers=dict(headers)))
        elif headers and isinstance(told, ClientMessageMetadata):
            message = replace(message, metadata=replace(told, headers={**(told.headers or {}), **headers}))
        self._sent(message)
        await self._stream.send(message)


def _declare_what_is_done(message: SessionMessage) -> None:
    """The package declares all of elicitation as soon as there is an answer to any. Servers of before 2026 ask within
    the call, which nobody can hold open until a person is there; and nobody opens the URL of a question."""
    params: dict[str, Any] = getattr(message.message, "params", None) or {}
    if getattr(message.message, "method", "") == _INITIALIZE:
        params["capabilities"].pop("elicitation", None)
    declared = params.get("_meta", {}).get(CLIENT_CAPABILITIES_META_KEY, {})
    declared.get("elicitation", {}).pop("url", None)
