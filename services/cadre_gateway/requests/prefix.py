"""Serve the gateway below a path, such as `/agents`, behind a reverse proxy that shares its host name among programs.

A proxy may pass the path on as it came, or strip the prefix before: both are answered. So are requests that come past
the proxy: probes, and services of the same cluster.
"""

from __future__ import annotations

from contextvars import ContextVar
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_prefix: ContextVar[str] = ContextVar("cadre_gateway_path", default="")


def address(path: str) -> str:
    """Return a path of this gateway as the client of the current request knows it."""
    return _prefix.get() + path


def below(prefix: str, app: ASGIApp) -> ASGIApp:
    """Return an application that answers for `app` below the prefix as well; what `Location` names is below it."""
    if not prefix:
        return app
    start, raw_start = f"{prefix}/", f"{prefix}/".encode()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        path, raw = scope["path"], scope.get("raw_path") or b""
        if path == prefix or path.startswith(start):
            path = path[len(prefix) :] or "/"
            raw = raw[len(prefix) :] if raw.startswith(raw_start) else quote(path).encode()
        _prefix.set(prefix)
        await app({**scope, "path": path, "raw_path": raw, "root_path": prefix}, receive, locating(send))

    def locating(send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name, _located(name, value)) for name, value in message["headers"]]
            await send(message)

        return sending

    def _located(name: bytes, value: bytes) -> bytes:
        is_own = name.lower() == b"location" and value.startswith(b"/") and not value.startswith(b"//")
        if not is_own or value == prefix.encode() or value.startswith(raw_start):
            return value
        return prefix.encode() + value

    return answer
