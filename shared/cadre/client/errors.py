"""The exceptions of a client of the gateway; each text says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cadre.errors import CadreError

if TYPE_CHECKING:
    from cadre.api.runs import RunDetail


class ClientError(CadreError):
    """The gateway refused a request, or cannot be reached.

    `status` is the HTTP status, 0 without an answer; `problem` the code in it (docs/http-api.md), "" without one.
    """

    def __init__(self, message: str, status: int = 0, problem: str = "") -> None:
        super().__init__(message)
        self.message, self.status, self.problem = message, status, problem


class Unreachable(ClientError, ConnectionError):
    """No gateway answers, or NATS behind it does not: try again, or start it."""


class InvalidRequest(ClientError):
    """The request cannot be used as it is; the text names what is wrong in it."""


class Unauthorized(ClientError):
    """The caller lacks the right (403), or sent no valid key (401: pass `api_key`, or set CADRE_API_KEY)."""


class NotFound(ClientError):
    """There is no such run, agent, call, file or memory."""


class Conflict(ClientError):
    """The request does not fit the state of things: decided already, session busy, run ended, file changed …"""


class TooManyRequests(ClientError):
    """The deployment has no room for another run. `retry_after` says in how many seconds to ask again."""

    def __init__(self, message: str, status: int = 429, problem: str = "", retry_after: float = 30.0) -> None:
        super().__init__(message, status, problem)
        self.retry_after = retry_after


class RunFailed(ClientError):
    """A run ended without the answer that was asked for.

    `kind` and `text` are those of the run's error; `run` is all that is known of it, a partial `output` included.
    """

    def __init__(self, run: RunDetail) -> None:
        self.run = run
        self.kind = run.error.type if run.error is not None else run.state
        self.text = run.error.message if run.error is not None else "no reason given"
        super().__init__(f"run {run.id} ended as {run.state}: {self.kind}: {self.text}")


class RunCancelled(RunFailed):
    """The run was cancelled; `text` is the reason."""


class TimedOut(ClientError, TimeoutError):
    """A run has not ended within the time to wait. It goes on: `run_id` names it."""

    def __init__(self, run_id: str, seconds: float) -> None:
        super().__init__(f"run {run_id} has not ended within {seconds:g} s; it goes on: attach to it, or cancel it")
        self.run_id = run_id


class OutputMismatch(ClientError):
    """A run's answer is not of the type that was asked for; `output` is the answer as JSON has it."""

    def __init__(self, run_id: str, output: Any, why: str) -> None:
        super().__init__(
            f"the answer of run {run_id} is of another form: {why}; the agent's output_schema says what it answers"
        )
        self.output = output


_OF_STATUS: dict[int, type[ClientError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
    # What stands before a gateway says 502 and 504 of one that is away.
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}


def refusal(status: int, answer: Any, where: str, retry_after: str | None = None) -> ClientError:
    """Return the error of an answer with this status; `answer` is its JSON, `where` the request in words."""
    document = answer if isinstance(answer, dict) else {}
    detail = document.get("detail") or document.get("title") or document.get("missing")
    if detail is None:
        detail = f"{where} answered {status}, which is not what Cadre's gateway says"
    message, problem = str(detail), str(document.get("code") or "")
    if status == 429:
        seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else 30.0
        return TooManyRequests(message, status, problem, seconds)
    return _OF_STATUS.get(status, ClientError)(message, status, problem)
