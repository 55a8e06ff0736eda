"""Tools for runs: list, show or wait for one, cancel it, say something to it, decide on a call of it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    InputResponses,
    Tool,
)

from cadre.api.runs import State
from cadre_gateway.access.principal import Principal, Right, caller_of
from cadre_gateway.access.reach import Kind
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.mcp.call_context import Context, follow, request_of
from cadre_gateway.doors.mcp.elicitation import ask, hear
from cadre_gateway.doors.mcp.outcome import data_result, outcome, result
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.rulings import questions_for
from cadre_gateway.doors.sender import RunService
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.requests import body
from cadre_gateway.requests.headers import utf8
from cadre_gateway.requests.idempotency import owned_key
from cadre_gateway.requests.problems import Problem, answer_deadline


class ListRuns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists runs, the newest first: their ids, agents, tasks and states."""

    agent: str | None = None
    state: State | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20


class GetRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gives the answer of a run, or what it waits for; with wait_seconds waits so long for either."""

    run: str
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0


class CancelRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ends a run and all that it has begun, once it has made up for what it did; with `now`, at once."""

    run: str
    reason: str = ""
    now: bool = False


class SendMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Says something to a run that goes on; its model reads it with its next step."""

    run: str
    text: str


class Decide(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Says a person's decision on a call that waits for one. Ask the person first. `correct` makes the call with these
    `arguments` in place of its own of the same names; so a question is answered, with `{"answer": …}`."""

    call: str
    decision: Literal["approve", "reject", "correct"]
    feedback: str = ""
    arguments: dict[str, Any] | None = None


class _RunTool(NamedTuple):
    tool: Tool
    right: Right


def _offered(name: str, right: Right, kind: type[msgspec.Struct]) -> _RunTool:
    (_,), parts = msgspec.json.schema_components([kind])
    schema = dict(parts[kind.__name__])
    description = " ".join(schema.pop("description").split())
    schema.pop("title")
    return _RunTool(Tool(name=name, description=description, input_schema=schema), right)


DECIDE = "cadre_decide"
TOOLS: dict[str, _RunTool] = {
    "cadre_list_runs": _offered("cadre_list_runs", "read", ListRuns),
    "cadre_get_run": _offered("cadre_get_run", "read", GetRun),
    "cadre_cancel_run": _offered("cadre_cancel_run", "act", CancelRun),
    "cadre_send_message": _offered("cadre_send_message", "act", SendMessage),
    DECIDE: _offered(DECIDE, "decide", Decide),
}
RECORDED = frozenset(name for name, one in TOOLS.items() if one.right != "read")
"""Those whose calls stand in the audit trail."""


class RunTools:
    """Does what the tools say. Every method raises Problem, RetryableError."""

    def __init__(self, runs: RunService, *, offers_decide: bool) -> None:
        """`offers_decide`: whether approvers' models may have the tool cadre_decide."""
        self._runs, self._offers_decide = runs, offers_decide
        self._answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)

    def offers(self, caller: Principal, name: str) -> bool:
        """Return whether the caller has this one of TOOLS."""
        return caller.may(TOOLS[name].right) and (name != DECIDE or self._offers_decide)

    async def call(
        self, context: Context, asked: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Return what came of a call of one of TOOLS. Raise a 403 problem for one that the caller has not."""
        if not self.offers(caller_of(request_of(context)), asked.name):
            needed = f"tool {asked.name!r} needs the right `{TOOLS[asked.name].right}`"
            if asked.name == DECIDE and not self._offers_decide:
                needed += " and CADRE_MCP_DECIDE=on at the gateway: a person decides in the console instead"
            raise Problem(403, "forbidden", needed)
        data = msgspec.json.encode(asked.arguments or {})
        match asked.name:
            case "cadre_list_runs":
                return await self._list(context, body.parse(data, ListRuns))
            case "cadre_get_run":
                return await self._get(context, body.parse(data, GetRun), asked.input_responses)
            case "cadre_cancel_run":
                return await self._cancel(context, body.parse(data, CancelRun))
            case "cadre_send_message":
                return await self._send(context, body.parse(data, SendMessage))
            case _:
                return await self._decide(context, body.parse(data, Decide))

    async def _list(self, context: Context, asked: ListRuns) -> CallToolResult:
        caller = caller_of(request_of(context))
        states = frozenset([asked.state]) if asked.state is not None else None
        wanted = RunFilter(agent=asked.agent, states=states, reach=caller.reach)
        found, _ = await self._runs.lookup.index.list(wanted, limit=asked.limit)
        told = ("id", "agent", "task", "state", "waiting_for", "approvals", "started_at", "ended_at")
        return data_result({"runs": [{name: getattr(run, name) for name in told} for run in found]})

    async def _get(
        self, context: Context, asked: GetRun, said: InputResponses | None
    ) -> CallToolResult | InputRequiredResult:
        caller = caller_of(request_of(context))
        await self._check(context, "run", asked.run)
        progress = await self._answers.so_far(Place(asked.run))
        heard = await hear(context, self._runs, progress, said)
        if asked.wait_seconds and progress.end is None and not progress.held.keys() - heard.decided:
            try:
                async with asyncio.timeout(asked.wait_seconds):
                    progress = await follow(self._answers, asked.run, context, heard.decided)
            except TimeoutError:
                progress = await self._answers.so_far(Place(asked.run))
        if progress.end is None and not progress.held.keys() - heard.decided:
            return result(f"Run {asked.run} goes on. Ask again, with wait_seconds.")
        questions = await questions_for(self._runs.reach, caller, progress)
        return await ask(context, self._runs, progress, heard) or outcome(
            progress, needs_data=False, asked=questions, decides=self.offers(caller, DECIDE)
        )

    async def _cancel(self, context: Context, asked: CancelRun) -> CallToolResult:
        await self._check(context, "run", asked.run)
        async with answer_deadline():
            request = request_of(context)
            key = owned_key(caller_of(request).owner, request.headers.get("idempotency-key"))
            found = await self._runs.run_end.cancel(asked.run, asked.reason, now=asked.now, key=key)
        said = f"had ended already ({found.state})" if found.finished else "was asked to end"
        return result(f"Run {asked.run} {said}.")

    async def _send(self, context: Context, asked: SendMessage) -> CallToolResult:
        await self._check(context, "run", asked.run)
        said = body.message(msgspec.json.encode({"text": asked.text}))
        request = request_of(context)
        key = owned_key(caller_of(request).owner, request.headers.get("idempotency-key"))
        return data_result(
            await self._runs.steering.tell(asked.run, said.text, said.mode, key, _by(context) or "")
        )

    async def _decide(self, context: Context, asked: Decide) -> CallToolResult:
        await self._check(context, "call", asked.call)
        told = {"decision": asked.decision, "feedback": asked.feedback, "arguments": asked.arguments}
        ruling = body.ruling(msgspec.json.encode(told), _by(context))
        traceparent = request_of(context).headers.get("traceparent")
        return data_result(await self._runs.decisions.decide(asked.call, ruling, traceparent))

    async def _check(self, context: Context, what: Kind, name: str) -> None:
        await self._runs.reach.check(caller_of(request_of(context)), what, name)


def _by(context: Context) -> str | None:
    return utf8(request_of(context).headers.get("cadre-user"))
