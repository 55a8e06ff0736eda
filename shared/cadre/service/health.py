"""`/healthz`, `/readyz` and `/metrics` in front of any ASGI application."""

import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

_SOON = ((b"retry-after", b"1"),)


class HealthAnswer(NamedTuple):
    """An answer to `GET /metrics`."""

    status: int
    content_type: bytes
    body: bytes


class Unready(NamedTuple):
    """The reason why a process cannot work at the moment."""

    code: str
    """Stable, for programs."""
    text: str
    """One line for people."""
    is_shared: bool = False
    """True if every replica lacks it, as NATS: then this one answers requests as well as another would."""


def with_health(
    app: AsgiApp,
    unready: Callable[[], Unready | None],
    about: Callable[[], dict[str, str]] = dict,
    metrics: Callable[[], Awaitable[HealthAnswer]] | None = None,
) -> AsgiApp:
    """Answer the two probes and `/metrics` itself, everything else is `app`'s.

    `/healthz`: 200 as long as the process answers at all. `/readyz`: 200 with what `about` says, or 503 with the
    code of what is missing, and that in one line. `/readyz/self`: the same, but 200 where what is missing is not
    this process's own: requests are answered then, with a reason if need be, and another replica would do no better.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path") if scope["type"] == "http" else None
        if path == "/healthz":
            await _reply(send, 200, {"status": "alive"})
        elif path in ("/readyz", "/readyz/self"):
            missing = unready()
            if missing is None or (missing.is_shared and path == "/readyz/self"):
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
    """Answer with a problem."""
    problem = problem_document(status, code, detail)
    more = _SOON if status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    await _reply(send, status, problem, b"application/problem+json", more)


async def _reply(
    send: Any,
    status: int,
    body: dict[str, Any],
    content_type: bytes = b"application/json",
    more: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    await _send(send, status, json.dumps(body).encode(), content_type, more)


async def _send(
    send: Any, status: int, body: bytes, content_type: bytes, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", content_type), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
