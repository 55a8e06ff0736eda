"""`/healthz`, `/readyz` and `/metrics` in front of any ASGI application."""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


class HealthAnswer(NamedTuple):
    """An answer to `GET /metrics`."""

    status: int
    content_type: bytes
    body: bytes


class Unready(NamedTuple):
    """Why a process cannot work at the moment."""

    code: str
    """Stable, for programs."""
    text: str
    """One line for people."""


def with_health(
    app: AsgiApp,
    unready: Callable[[], Unready | None],
    about: Callable[[], dict[str, str]] = dict,
    metrics: Callable[[], Awaitable[HealthAnswer]] | None = None,
) -> AsgiApp:
    """Answers the two probes and `/metrics` itself, everything else is `app`'s.

    `/healthz`: 200 as long as the process answers at all. `/readyz`: 200 with what `about` says, or 503 with the
    code of what is missing, and that in one line.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path") if scope["type"] == "http" else None
        if path == "/healthz":
            await _reply(send, 200, {"status": "alive"})
        elif path == "/readyz":
            missing = unready()
            if missing is None:
                await _reply(send, 200, {"status": "ready", **about()})
            else:
                body = {"status": "not ready", "code": missing.code, "missing": missing.text}
                await _reply(send, 503, body)
        elif path == "/metrics" and metrics is not None:
            answered = await metrics()
            await _send(send, answered.status, answered.body, answered.content_type)
        else:
            await app(scope, receive, send)

    return answer


def problem_document(status: int, code: str, detail: str) -> dict[str, Any]:
    """Problem details (RFC 9457), as the gateway's own errors are."""
    return {
        "type": f"https://cadre.dev/problems/{code}",
        "code": code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }


async def send_problem(send: Any, status: int, code: str, detail: str) -> None:
    """Answers with a problem."""
    await _reply(send, status, problem_document(status, code, detail), b"application/problem+json")


async def _reply(
    send: Any, status: int, body: dict[str, Any], content_type: bytes = b"application/json"
) -> None:
    await _send(send, status, json.dumps(body).encode(), content_type)


async def _send(send: Any, status: int, body: bytes, content_type: bytes) -> None:
    headers = [(b"content-type", content_type)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
