"""Make a call of an MCP server in as many rounds as the server wants; no worker is held between two rounds.

If the server makes a task of the call, each later round asks for the task. If the server asks a person, the next round
sends the answers. The state of the call is in its journal.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from cadre.errors import CadreError
from cadre.protocol.messages import PersonsAnswer, Unfinished
from cadre.tools.decorator import CallInterrupted, CallPaused

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from cadre.adapters.mcp.session import CallAnswer, McpSession, Progress


T = TypeVar("T")

_GROWTH = 1.5
_MOST_SECONDS = 15.0
"""The longest pause between two questions for a task, unless its server wants a longer one."""
ABSENCE_SECONDS = 600.0
"""Seconds for which a server may be out of reach before the call of a task is given up."""
_AWAY_SECONDS = 10.0


class McpToolError(CadreError):
    """An error that the server reports for a call."""


class ServerUnreachable(McpToolError):
    """The server cannot be asked."""


class TaskUnknown(McpToolError):
    """The server refuses what it is asked about a task."""


class ServerRequests(Protocol):
    """Sends a request to the server. Raises McpToolError."""

    async def __call__(self, send: Callable[[McpSession], Awaitable[T]], *, may_repeat: bool = False) -> T:
        """Return the answer; a request that may be repeated is sent again when the server dies in it."""
        ...


class Rounds:
    """The rounds of one call."""

    def __init__(
        self,
        request: ServerRequests,
        *,
        tool: str,
        arguments: dict[str, Any],
        meta: dict[str, str],
        progress: Progress,
        timeout: float | None,
    ) -> None:
        self._request = request
        self._tool, self._arguments = tool, arguments
        self._meta, self._progress = meta, progress
        self._timeout = timeout

    async def begin(self) -> CallToolResult:
        """Return the answer. Raises CallPaused, McpToolError."""
        return await self._send(CallSoFar(since=time.time()))

    async def go_on(self, call: CallSoFar) -> CallToolResult:
        """Return the answer of a call that has come so far. Raises CallPaused, CallInterrupted, McpToolError."""
        if call.questions:
            raise CallPaused(call.question())
        if not call.task:
            return await self._send(call)
        try:
            return await self._ask(call)
        except ServerUnreachable as error:
            pause = call.absence(time.time())
            if pause is None:
                raise CallInterrupted(f"{error}, and so is its task {call.task}") from error
            raise CallPaused(pause) from error
        except TaskUnknown as error:
            raise CallInterrupted(f"task {call.task} of the server: {error}") from error

    async def give_up(self, call: CallSoFar) -> None:
        """Inform the server that the call is no longer awaited. Raises McpToolError."""
        if call.task:
            await self._request(lambda session: session.cancel_task(call.task), may_repeat=True)

    async def _send(self, call: CallSoFar) -> CallToolResult:
        from mcp_types import InputRequiredResult

        from cadre.adapters.mcp.session import BegunTask

        answers = _told(call)
        found: CallAnswer = await self._request(
            lambda session: session.call(
                self._tool, self._arguments, self._meta, self._progress, answers, call.request_state
            )
        )
        if isinstance(found, InputRequiredResult):
            state = msgspec.structs.replace(call, request_state=found.request_state, answers={})
            raise CallPaused(_asked(state, _requests(found.input_requests)))
        if isinstance(found, BegunTask):
            begun = CallSoFar(since=call.since, task=found.task_id)
            raise CallPaused(begun.pause(found.poll_interval_ms))
        return found

    async def _ask(self, call: CallSoFar) -> CallToolResult:
        """Return the state of the task after its server got people's answers."""
        if call.answers:
            answers = _told(call) or {}
            await self._request(lambda session: session.update_task(call.task, answers), may_repeat=True)
            call = msgspec.structs.replace(call, answers={}, quiet=0)
        found = await self._request(lambda session: session.task(call.task), may_repeat=True)
        match found.status:
            case "completed":
                from mcp_types import CallToolResult

                return CallToolResult.model_validate(found.result or {"content": []})
            case "failed":
                raise McpToolError(str((found.error or {}).get("message") or found.status_message or "it failed"))
            case "cancelled":
                raise McpToolError(found.status_message or "the server has cancelled its task")
        if self._timeout is not None and time.time() - call.since > self._timeout:
            await self.give_up(call)
            raise McpToolError(f"TimeoutError: no result within {self._timeout:g} s")
        if found.status == "input_required" and found.input_requests:
            try:
                paused = _asked(call, found.input_requests)
            except McpToolError:
                await self.give_up(call)
                raise
            raise CallPaused(paused)
        raise CallPaused(call.pause(found.poll_interval_ms))


def _asked(call: CallSoFar, requests: Mapping[str, Any]) -> Unfinished:
    """Return the pause until the requests are answered. Raises McpToolError for those that no person can answer."""
    questions: dict[str, Question] = {}
    for key, request in requests.items():
        method, params = request.get("method"), request.get("params") or {}
        if method != "elicitation/create" or params.get("mode", "form") != "form":
            raise McpToolError(f"the server asks for {method}, which is not answered here")
        questions[key] = Question(str(params.get("message", "")), params.get("requestedSchema") or {})
    asked = msgspec.structs.replace(call, questions=questions, answers={})
    return asked.question() if questions else asked.retry()


def _requests(requests: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        key: request.model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, request in (requests or {}).items()
    }


def _told(call: CallSoFar) -> dict[str, Any] | None:
    return {key: msgspec.to_builtins(answer) for key, answer in call.answers.items()} or None


class Question(msgspec.Struct, frozen=True):
    """A question of a server to a person."""

    message: str
    schema: dict[str, Any] = {}


class ElicitationAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a person, as a server gets it."""

    action: Literal["accept", "decline"]
    content: dict[str, Any] | None = None


class CallSoFar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a call."""

    since: float
    """The time at which it began, in Unix seconds."""
    task: str = ""
    """The server's task; else it is to be sent again, with the answers."""
    request_state: str | None = None
    """The state that the server expects back with the answers."""
    questions: dict[str, Question] = {}
    """The unanswered questions."""
    answers: dict[str, ElicitationAnswer] = {}
    quiet: int = 0
    """The number of requests for the task that brought nothing."""
    away_since: float | None = None

    def asked(self, answer: PersonsAnswer) -> CallSoFar:
        """With the answer to the first of its questions."""
        (key, _), *others = self.questions.items()
        said = ElicitationAnswer(answer.action, answer.content if answer.action == "accept" else None)
        return msgspec.structs.replace(self, questions=dict(others), answers={**self.answers, key: said})

    def question(self) -> Unfinished:
        """Return the pause until a person has answered the first of its questions."""
        first = next(iter(self.questions.values()))
        # To tell a task an answer twice does no harm; a call that is sent again may have an effect.
        return self._pause(question=first.message, schema=first.schema, may_repeat=bool(self.task))

    def retry(self) -> Unfinished:
        """Return the pause before a call is sent again whose server wants that, and asks nothing."""
        return self._pause(seconds=1.0)

    def pause(self, poll_ms: float | None) -> Unfinished:
        """Return the pause before the task is asked for again."""
        wanted = (poll_ms or 0) / 1000
        state = msgspec.structs.replace(self, quiet=self.quiet + 1, answers={}, away_since=None)
        return state._pause(seconds=max(wanted, min(_GROWTH**self.quiet, _MOST_SECONDS)), may_repeat=True)

    def absence(self, now: float) -> Unfinished | None:
        """Return the pause before a server is tried that is out of reach; None when that has lasted too long."""
        since = self.away_since or now
        if now - since > ABSENCE_SECONDS:
            return None
        return msgspec.structs.replace(self, away_since=since)._pause(seconds=_AWAY_SECONDS, may_repeat=True)

    def _pause(self, **fields: Any) -> Unfinished:
        return Unfinished(state=msgspec.to_builtins(self), **fields)


def so_far(state: dict[str, Any]) -> CallSoFar:
    """Return how far the call has come, as its journal has it."""
    return msgspec.convert(state, CallSoFar)
