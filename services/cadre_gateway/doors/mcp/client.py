"""Read the context of an MCP message, and ask the person behind the client about calls that wait for one."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import Request
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    InputResponses,
)

from cadre.adapters.nats.sessions import SessionTurn
from cadre.journal.events import ApprovalRequested
from cadre.protocol.messages import Verdict
from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.progress import PendingAnswer, Place, Progress
from cadre_gateway.doors.rulings import ASK_USER, OVERTAKEN, questions_for, said
from cadre_gateway.doors.sender import RunService
from cadre_gateway.requests.body import Ruling
from cadre_gateway.requests.parameters import utf8
from cadre_gateway.requests.problems import Problem, invalid

SESSION = "mcp-session-id"
"""The header by which a client of 2025 names its session: it separates its requests from those of others, and nothing
is kept of it."""
_CALLS, _KEPT_SECONDS = "mcp", 86_400


def may_be_asked(context: Context) -> bool:
    """Return whether the client takes forms for a person to fill in, and its key may decide."""
    told = context.session.client_capabilities
    offered = told.elicitation if told is not None else None
    takes_forms = offered is not None and (offered.form is not None or offered.url is None)
    return takes_forms and caller_of(request_of(context)).may("decide")


class Heard(NamedTuple):
    """A person's answers to the questions of a run, by call."""

    decided: frozenset[str] = frozenset()
    put_off: frozenset[str] = frozenset()


async def hear(context: Context, runs: RunService, progress: Progress, responses: InputResponses | None) -> Heard:
    """Decide on what a person was asked; what does not wait any more is passed over. Raise a 403 problem for a key that
    may not decide, a 422 one, RetryableError."""
    if not responses:
        return Heard()
    caller = caller_of(request_of(context))
    if not caller.may("decide"):
        raise Problem(403, "forbidden", "this key may not decide on calls: the role `approver` does")
    waiting = await questions_for(runs.reach, caller, progress)
    decided, put_off = set[str](), set[str]()
    for call, response in responses.items():
        if (held := waiting.get(call)) is None:
            continue
        decision = ruling(held, response.model_dump(by_alias=True), context)
        if decision is None:
            put_off.add(call)
            continue
        decided.add(call)
        try:
            await runs.decisions.decide(call, decision, request_of(context).headers.get("traceparent"), caller.titles)
        except Problem as problem:
            if problem.code not in OVERTAKEN:
                raise
    return Heard(frozenset(decided), frozenset(put_off))


async def ask(context: Context, runs: RunService, progress: Progress, heard: Heard) -> InputRequiredResult | None:
    """Return the result that has the client ask a person what the run waits for; None where there is no question for
    them. Raise RetryableError."""
    if progress.end is not None or not may_be_asked(context):
        return None
    asked = await questions_for(runs.reach, caller_of(request_of(context)), progress)
    requests: dict[str, Any] = {
        call: ElicitRequest(params=ElicitRequestFormParams.model_validate(question(held)["params"]))
        for call, held in asked.items()
        if call not in heard.decided | heard.put_off
    }
    return InputRequiredResult(input_requests=requests, request_state=progress.run) if requests else None


def question(held: PendingAnswer) -> dict[str, Any]:
    """Return the request that asks a person about a call."""
    request = held.request
    properties: dict[str, Any] = {
        "confirm": {"type": "boolean", "title": "Yes"},
        "feedback": {"type": "string", "description": "What the agent reads with the decision."},
    }
    required, message = ["confirm"], _ask(request)
    if request.name == ASK_USER:
        properties, required = {"answer": {"type": "string"}}, ["answer"]
        message = str(request.arguments.get("question", ""))
    schema = {"type": "object", "properties": properties, "required": required}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _ask(request: ApprovalRequested) -> str:
    if request.kind == "question":
        return request.reason
    arguments = json.dumps(request.arguments, ensure_ascii=False)
    sentence = f"{request.text}\n" if request.text else ""
    return f"{sentence}May {request.name} be called with {arguments}? ({request.reason})"


def ruling(held: PendingAnswer, answer: Mapping[str, Any], context: Context) -> Ruling | None:
    """Return the decision in the answer to a question; None where the person has put it off. Raise a 422 problem."""
    content = answer.get("content")
    told: dict[str, Any] = content if isinstance(content, dict) else {}
    action, arguments = answer.get("action"), None
    verdict: Verdict = "rejected"
    if action == "cancel":
        return None
    if action == "accept" and held.request.name == ASK_USER and isinstance(told.get("answer"), str):
        verdict, arguments = "corrected", {"answer": told["answer"]}
    elif action == "accept" and told.get("confirm") is True:
        verdict = "approved"
    elif action != "decline" and not (action == "accept" and told.get("confirm") is False):
        raise invalid("answer an elicitation with accept (and the content that it asks for), decline or cancel")
    by = utf8(request_of(context).headers.get("cadre-user")) or ""
    return said(verdict, by, str(told.get("feedback", "")), arguments)


Context = ServerRequestContext[Any, Any]

EXTENSION = "io.modelcontextprotocol/tasks"


def request_of(context: Context) -> Request:
    """Return the request that has brought the message."""
    request = context.request
    assert isinstance(request, Request)
    return request


class Cancellations:
    """Ends the runs of calls that clients of 2025 give up by a notification, at any gateway that receives it."""

    def __init__(self, runs: RunService) -> None:
        self._runs = runs

    async def note(self, request: Request, message: Any, run: str) -> None:
        """Keep for a while which run the call began. Raise RetryableError."""
        if (name := _call_name(request, message)) is None:
            return
        _, fence = await self._runs.turns.read(_CALLS, name, None)
        begun = SessionTurn(run=run, at=self._runs.clock.now())
        await self._runs.turns.record(_CALLS, name, None, begun, fence, seconds=_KEPT_SECONDS)

    async def end(self, request: Request, message: Any) -> None:
        """Cancel the run that the call began, if that is known. Raise Problem, RetryableError."""
        if (name := _call_name(request, message)) is None:
            return
        begun, _ = await self._runs.turns.read(_CALLS, name, None)
        if begun is not None and await self._runs.reach.has(caller_of(request), "run", begun.run):
            await self._runs.run_end.cancel(begun.run, "its caller gave it up")


def _call_name(request: Request, message: Any) -> str | None:
    """Return what names a request of a session of this caller; None for a client that has no session."""
    session = request.headers.get(SESSION)
    if not session or not isinstance(message, str | int):
        return None
    told = f"{caller_of(request).owner}\n{session}\n{message!r}"
    return f"call-{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def takes_tasks(context: Context) -> bool:
    """Return whether the client has said with this message that it knows tasks."""
    told = context.session.client_capabilities
    return told is not None and EXTENSION in (told.extensions or {})


def check_knows_tasks(context: Context) -> None:
    """Raise MCPError unless the client has said that it knows tasks."""
    if not takes_tasks(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"declare the extension {EXTENSION}", needed)


async def follow(answers: Answers, run: str, context: Context, decided: frozenset[str] = frozenset()) -> Progress:
    """Return the run's progress once the run has ended or waits for a person, which may be at once. Report progress
    even for a run that ended before. Calls that were `decided` are not waited for, however late their run learns of
    the decision. Raise a problem."""
    while True:
        known = await answers.so_far(Place(run))
        if known.held.keys() - decided:
            return known
        # What waited before was decided: the next pause counts.
        progress, told = Progress(run, known.pauses[-1].seq if known.pauses else 0), 0
        async with contextlib.aclosing(answers.follow(progress)) as news:
            async for one in news:
                for line in one.lines:
                    told += 1
                    await context.session.report_progress(told, None, line)
        if progress.end is not None or progress.held.keys() - decided:
            return progress
