"""Errors of requests as RFC 9457 problem details, and how long a request may take."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match

from cadre.errors import (
    BlobMissing,
    BusFull,
    MemoryRefused,
    MemoryUnavailable,
    NewerSchema,
    NotPermitted,
    ProviderUnavailable,
    RetryableError,
    RunIndexBuilding,
    RunIndexUnavailable,
    TooLarge,
)

log = logging.getLogger("cadre.gateway")

ANSWER_SECONDS = 6.0
"""All questions to NATS of one request together; of a long tree, each page of it."""

BASE_URL = "https://cadre.dev/problems/"

TITLES = {
    "unknown-agent": "No agent has this name",
    "unknown-tool": "No tool has this name",
    "unknown-pool": "No sandbox pool has this name",
    "unknown-queue": "There is no such queue",
    "queue-in-use": "Something waits in the queue, or somebody serves it",
    "unknown-run": "There is no such run",
    "unknown-entry": "The run has no such entry",
    "unknown-model-call": "The step has no such model call",
    "prompts-gone": "The prompts of the run are gone",
    "unknown-blob": "There is no such blob",
    "unknown-file": "There is no such file",
    "file-changed": "Somebody else has written the file",
    "invalid-request": "The request cannot be used as it is",
    "idempotency-key-reused": "The key belongs to another request",
    "cross-origin": "A page of another site asked",
    "unauthorized": "Who asks is not known",
    "forbidden": "Who asks may not do this",
    "out-of-scope": "The key does not reach this",
    "not-entitled": "The rule that holds the call has others decide",
    "unknown-host": "The gateway has another name",
    "rate-limited": "Too many requests",
    "unknown-key": "There is no such key",
    "session-busy": "The session's last run has not ended",
    "cannot-fork": "The run cannot be forked at that step",
    "unknown-approval": "There is no such call",
    "already-decided": "Another decision was first",
    "approval-expired": "The decision came too late",
    "run-ended": "The run is over",
    "reads-no-messages": "A program reads no messages",
    "messages-full": "The run's message queue is full",
    "approval-dropped": "The call was given up",
    "stale-version": "It has changed meanwhile",
    "contract-broken": "Something could not work with it",
    "not-editable": "There is nothing to edit",
    "edit-too-late": "What is to be edited has begun already",
    "signals-full": "The run keeps as many signals as it can",
    "unknown-schedule": "There is no such schedule",
    "schedule-exists": "There is a schedule of this name",
    "unknown-notice": "There is no such notice",
    "unknown-budget": "There is no such budget",
    "budget-exhausted": "A standing budget is used up",
    "unknown-trigger": "There is no such trigger",
    "trigger-paused": "The trigger starts no runs now",
    "invalid-signature": "The webhook is not signed as it must be",
    "no-secret": "A secret is not set",
    "newer-version": "A newer version wrote it",
    "unknown-dead-letter": "There is no such dead letter",
    "message-gone": "The message of the dead letter has been removed",
    "retry-useless": "The run does not wait for this message any more",
    "capacity": "There is no room for another run",
    "run-not-ended": "The run has not ended",
    "run-erased": "The run was erased",
    "run-exists": "The run is here already",
    "unknown-shards": "The run began in shards that are not here",
    "unreadable-run": "The run was written by another version",
    "invalid-run-file": "The file holds no run that can be imported",
    "bus-unavailable": "NATS does not answer",
    "not-permitted": "The gateway's NATS user lacks a right",
    "provider-unavailable": "The OpenID provider does not answer",
    "index-unavailable": "The database of the index does not answer",
    "index-building": "The gateway reads the journals still",
    "busy": "The gateway has no room for it now",
    "request-timeout": "The request did not come in time",
    "reading-busy": "Other long runs are being read",
    "trace-too-long": "The trace has more spans than one answer holds",
    "memory-unavailable": "No memory service answers",
    "unknown-memory": "There is no such memory",
    "draining": "This gateway is going away",
    "too-large": "The request is too large",
    "internal": "The gateway failed",
    "not-begun": "The run has not begun",
    "broken-chain": "The journals were changed",
    "changed-meanwhile": "Others change it at the same time",
    "evaluation-ended": "The evaluation of a template was ended",
    "rebuilding": "The index is being read already",
    "not-the-writer": "Another gateway writes the index",
    "run-failed": "The run has ended without an answer",
    "run-cancelled": "The run was cancelled",
    "not-found": "There is nothing at this path",
    "method-not-allowed": "The path does not take this method",
    # Of the doors, which answer in the forms of their protocols.
    "answer-changed": "The answer has changed while it was sent",
    "request-cancelled": "The caller has gone",
    "not-json": "The body is not JSON",
    "not-a-call": "The body is no call of JSON-RPC",
    "parse-error": "The body is no message of JSON-RPC",
    "unknown-method": "There is no such method",
    "unknown-version": "The version is not spoken here",
    "task-not-cancelable": "The task is over",
    "unknown-conversation": "There is no such conversation",
    "unknown-item": "The conversation has no such item",
}
"""The closed list of the codes of problems, with their titles."""


_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

_RETRY_AFTER = {503: {"Retry-After": "1"}, 429: {"Retry-After": "30"}}


class Problem(Exception):
    """Ends a request with a problem document; `detail` says what to do."""

    def __init__(self, status: int, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.more = more
        """Further members of the document."""
        self.headers: Mapping[str, str] = {}


def invalid(detail: str, status: int = 422, *, field: str = "") -> Problem:
    """Return the problem of a request that cannot be used as it is; `field` is the key of its body that is wrong."""
    if not field:
        return Problem(status, "invalid-request", detail)
    return Problem(status, "invalid-request", f"{field}: {detail}", field=field)


def unknown_run(run: str) -> Problem:
    """Return the 404 problem of a run that is not known."""
    return Problem(404, "unknown-run", f"run {run!r} is not known here: GET /v1/runs lists the runs")


def unknown_call(call: str) -> Problem:
    """Return the 404 problem of a call that was never held back."""
    detail = f"no call {call!r} was held back: GET /v1/approvals lists those that wait"
    return Problem(404, "unknown-approval", detail)


def unauthorized(detail: str, error: str = "") -> Problem:
    """Return the 401 problem; `error` is one of RFC 6750, for a token that was read and does not count."""
    problem = Problem(401, "unauthorized", detail)
    more = f', error="{error}", error_description="{detail}"' if error else ""
    problem.headers = {"WWW-Authenticate": f'Bearer realm="cadre"{more}'}
    return problem


def full(why: str) -> Problem:
    """Return the 429 problem of a deployment without room."""
    return Problem(
        429,
        "capacity",
        f"{why}; runs in flight go on. Remove runs (`cadre runs remove`) or raise the limit, then try again"
        " (with the same Idempotency-Key)",
    )


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_CODES = {
    "unknown-agent": "model_not_found",
    "unknown-run": "response_not_found",
    "unknown-file": "file_not_found",
    "unknown-conversation": "conversation_not_found",
    "unknown-item": "item_not_found",
    "budget-exhausted": "insufficient_quota",
    "capacity": "rate_limit_exceeded",
}


def error_of(problem: Problem) -> dict[str, Any]:
    """Return the problem as the `error` object of OpenAI's API."""
    kind = "server_error" if problem.status >= 500 else "invalid_request_error"
    return {
        "message": problem.detail,
        "type": _TYPES.get(problem.status, kind),
        "param": problem.more.get("field"),
        "code": _CODES.get(problem.code, problem.code.replace("-", "_")),
    }


def respond(problem: Problem, instance: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem as an answer; `instance` is the path of the request. Below /v1, where clients of OpenAI's API
    look as well, it holds the `error` that they read."""
    of_openai = {"error": error_of(problem)} if instance.startswith("/v1/") else {}
    return JSONResponse(
        {
            "type": BASE_URL + problem.code,
            "code": problem.code,
            "title": TITLES.get(problem.code) or HTTPStatus(problem.status).phrase,
            "status": problem.status,
            "detail": problem.detail,
            "instance": instance,
            **problem.more,
            **of_openai,
        },
        status_code=problem.status,
        media_type="application/problem+json",
        headers=headers or problem.headers or _RETRY_AFTER.get(problem.status),
    )


FORESEEN = (
    Problem,
    RetryableError,
    TooLarge,
    BlobMissing,
    NewerSchema,
    MemoryRefused,
    NotPermitted,
    TimeoutError,
    ClientDisconnect,
    RequestValidationError,
    HTTPException,
)
"""The exceptions that a request may raise; any other is a bug, which the server logs."""


def as_problem(error: Exception) -> Problem:
    """Return the problem of an exception; an unforeseen one, which the server logs, is `internal`."""
    match error:
        case Problem():
            return error
        case BusFull():
            return full(str(error))
        case MemoryUnavailable():
            return Problem(503, "memory-unavailable", str(error))
        case RunIndexBuilding():
            problem = Problem(503, "index-building", str(error))
            problem.headers = {"Retry-After": "5"}
            return problem
        case RunIndexUnavailable():
            return Problem(503, "index-unavailable", str(error))
        case ProviderUnavailable():
            return Problem(503, "provider-unavailable", str(error))
        case MemoryRefused():
            return Problem(404, "unknown-memory", str(error)) if error.not_found else invalid(str(error))
        case RetryableError() | TimeoutError():
            why = str(error) or "NATS did not answer in time"
            return Problem(503, "bus-unavailable", f"{why}; try again (with the same Idempotency-Key)")
        case NewerSchema():
            return Problem(
                503, "newer-version", f"entries of a newer version: {error}, or ask a gateway of that version"
            )
        case NotPermitted():
            log.error("%s", error)
            return Problem(500, "not-permitted", str(error))
        case TooLarge():
            return Problem(413, "too-large", str(error))
        case ClientDisconnect():
            return Problem(408, "request-timeout", "the rest of the body did not come")
        case BlobMissing():
            return Problem(404, "unknown-blob", str(error))
        case RequestValidationError():
            return invalid("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()))
        case HTTPException():
            code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
            return Problem(error.status_code, code, f"{error.detail}: see /openapi.json for what there is")
        case _:
            return Problem(500, "internal", "unexpected error; the gateway's log has it")


def _allowed(request: Request) -> list[str]:
    """Return the methods of the request's path, over all routes."""
    routes: list[BaseRoute] = request.app.routes
    candidates = ({**request.scope, "method": method} for method in _METHODS)
    return [scope["method"] for scope in candidates if any(route.matches(scope)[0] is Match.FULL for route in routes)]


def install(app: FastAPI) -> None:
    """Make every error of the application a problem document."""

    async def handle(request: Request, error: Exception) -> Response:
        problem = as_problem(error)
        headers = {"Allow": ", ".join(_allowed(request))} if problem.status == 405 else None
        return respond(problem, request.url.path, headers)

    for kind in (*FORESEEN, Exception):
        app.add_exception_handler(kind, handle)


class _Deadline:
    """Holds the timeout of a block of `answer_deadline`, and what the block waits for."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout = timeout
        self.awaited: RetryableError | None = None
        """The error that names what has not answered when the time is up; None for NATS."""


_deadline: ContextVar[_Deadline | None] = ContextVar("answer_deadline", default=None)


@contextlib.asynccontextmanager
async def answer_deadline() -> AsyncIterator[None]:
    """Limit the block to ANSWER_SECONDS. Raise the error of what is awaited when they are over (see `awaiting`), or
    TimeoutError for NATS; either becomes a 503 problem."""
    deadline = _Deadline(asyncio.timeout(ANSWER_SECONDS))
    try:
        async with deadline.timeout:
            token = _deadline.set(deadline)
            try:
                yield
            finally:
                _deadline.reset(token)
    except TimeoutError as error:
        if deadline.awaited is not None and deadline.timeout.expired():
            raise deadline.awaited from error
        raise


@contextlib.contextmanager
def awaiting(silence: RetryableError) -> Iterator[None]:
    """Name what the block waits for: `answer_deadline` raises `silence` when its time is up in here."""
    deadline = _deadline.get()
    if deadline is None:
        yield
        return
    before, deadline.awaited = deadline.awaited, silence
    try:
        yield
    except asyncio.CancelledError:
        raise  # it stays the one that was awaited
    except BaseException:
        deadline.awaited = before
        raise
    deadline.awaited = before


def note_progress(more_seconds: float = 0.0) -> None:
    """Give the block of `answer_deadline` its whole time again, and more: NATS has answered, and there is more to
    ask."""
    deadline = _deadline.get()
    if deadline is not None and not deadline.timeout.expired():
        deadline.timeout.reschedule(asyncio.get_running_loop().time() + ANSWER_SECONDS + more_seconds)
