"""Offer agents as tools, each call of which is a run, and tools that list, show, cancel, steer and decide on runs."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import anyio
import msgspec
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    InputResponses,
    TextContent,
    Tool,
)

from cadre.api.runs import RunSummary, State
from cadre.protocol.access import Right
from cadre.protocol.cards import Presence
from cadre.protocol.messages import Verdict
from cadre.protocol.tagged import for_people
from cadre.spec.agent import AgentSpec
from cadre.structs import prose_of
from cadre_gateway.access.principal import Principal, caller_of
from cadre_gateway.access.reach import Kind
from cadre_gateway.doors.following import Answers, check_success
from cadre_gateway.doors.mcp.client import (
    Cancellations,
    Context,
    Heard,
    ask,
    check_knows_tasks,
    follow,
    hear,
    request_of,
    takes_tasks,
)
from cadre_gateway.doors.progress import PendingAnswer, Place, Progress, answer_text
from cadre_gateway.doors.rulings import questions_for
from cadre_gateway.doors.sender import RunService, begin_run, sender_of
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests import body
from cadre_gateway.requests.body import Submission
from cadre_gateway.requests.idempotency import IdempotencyKey, checked_key, owned_key, request_digest
from cadre_gateway.requests.parameters import utf8
from cadre_gateway.requests.problems import Problem, answer_deadline, unknown_run

RIGHT: Right = "act"
TASKS_LABEL = "cadre.dev/mcp-tasks"
"""The label of an agent that says whether its calls are tasks: `required`, `forbidden`, else as the client knows."""
KEY = "cadre.dev/idempotency-key"
SESSION = "cadre.dev/session"

_GIVEN_UP = "its caller has cancelled the call"
_INPUT = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What the agent shall do, with all that it needs to know."},
        "inputs": {"type": "object", "description": "Values that the agent reads by their names."},
        "session": {
            "type": "string",
            "description": "Name of a conversation: calls with the same name go on from each other.",
        },
    },
    "required": ["task"],
    "additionalProperties": False,
}


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    task: str
    inputs: dict[str, Any] = {}
    session: str | None = None


class AgentTools:
    """Lists agents as tools, and has them work."""

    def __init__(self, runs: RunService, *, offers_decide: bool) -> None:
        """`offers_decide`: whether approvers' models may have the tool cadre_decide."""
        self._runs, self._offers_decide = runs, offers_decide
        self._answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
        self._cancellations = Cancellations(runs)

    async def list(self, caller: Principal) -> list[Tool]:
        """Return the live agents that the caller may start."""
        live = live_agents(self._runs.registry.reachable())
        reached = caller.agents | caller.teams
        return [await self._tool(name, live[name][-1]) for name in sorted(live) if not caller.scoped or name in reached]

    async def call(
        self, context: Context, asked: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult | RunSummary:
        """Begin a run, or find the one of the same key or of the answers to what it asked, and follow it until it ends
        or a person is to be asked. When the call is given up, a run without a key of the caller's is cancelled: no
        caller could ask for it again. As a task the run goes on, and is returned. Raise a problem, or MCPError for a
        client that does not know tasks where they are required."""
        agent, arguments = asked.name, asked.arguments or {}
        live = live_agents(self._runs.registry.reachable()).get(agent)
        if live is None:
            raise Problem(404, "unknown-agent", f"no agent is named {agent!r}")
        as_task = _is_task(context, live[-1])
        spec = await self._spec(live[-1])
        request = request_of(context)
        meta: dict[str, Any] = dict(context.meta or {})
        own = checked_key(_text(meta.get(KEY)) or request.headers.get("idempotency-key"))
        needs_data = _answer_schema(spec) is not None
        if asked.request_state is not None:
            await self._check_goes_on(context, agent, asked.request_state)
            heard = asked.input_responses
            return await self._answer(context, asked.request_state, heard, needs_data, kept=own is not None)
        wanted = _wanted(agent, arguments, spec, _text(meta.get(SESSION)))
        sender = sender_of(request)
        owner = sender.caller.owner
        key = IdempotencyKey(owner, own or secrets.token_hex(16), request_digest(owner, "mcp", wanted))
        run = await self._runs.submitter.admission.keyed.run_of(key, agent)
        if (traceparent := _text(meta.get("traceparent"))) is not None:
            sender = replace(sender, traceparent=traceparent)
        try:
            if own is None:
                await self._cancellations.note(request, context.request_id, run)
            await begin_run(self._runs, sender, wanted, key)
        except anyio.get_cancelled_exc_class():
            if own is None and not self._runs.feeds.draining:
                await self._runs.run_end.give_up(run, _GIVEN_UP)
            raise
        if as_task:
            return await self._runs.lookup.find(run)
        return await self._answer(context, run, None, needs_data, kept=own is not None)

    async def _check_goes_on(self, context: Context, agent: str, run: str) -> None:
        """Raise a 404 problem unless the caller reaches this run of the agent, RetryableError."""
        await self._runs.reach.check(caller_of(request_of(context)), "run", run)
        async with answer_deadline():
            if (await self._runs.lookup.find(run)).agent != agent:
                raise unknown_run(run)

    async def _answer(
        self, context: Context, run: str, said: InputResponses | None, needs_data: bool, *, kept: bool
    ) -> CallToolResult | InputRequiredResult:
        """Return the answer of a run, or what a person is to be asked; `said` is what one has said. Unless the run is
        `kept`, it is cancelled when the call is given up. Raise a problem."""
        try:
            heard = Heard()
            if said:
                heard = await hear(context, self._runs, await self._answers.so_far(Place(run)), said)
            progress = await follow(self._answers, run, context, heard.decided)
        except anyio.get_cancelled_exc_class():
            if not kept and not self._runs.feeds.draining:
                await self._runs.run_end.give_up(run, _GIVEN_UP)
            raise
        asked = await ask(context, self._runs, progress, heard)
        caller = caller_of(request_of(context))
        questions = await questions_for(self._runs.reach, caller, progress)
        return asked or outcome(progress, needs_data=needs_data, asked=questions, decides=self._decides(context))

    def _decides(self, context: Context) -> bool:
        return self._offers_decide and caller_of(request_of(context)).may("decide")

    async def schema_of(self, agent: str) -> dict[str, Any] | None:
        """Return the schema of the answers of a live agent, if it has one."""
        live = live_agents(self._runs.registry.reachable()).get(agent)
        return _answer_schema(await self._spec(live[-1])) if live else None

    async def _tool(self, name: str, replica: Presence) -> Tool:
        assert replica.agent is not None
        spec = await self._spec(replica)
        return Tool(
            name=name,
            description=replica.agent.description,
            input_schema=_INPUT if spec is None or spec.input_schema is None else spec.input_schema,
            output_schema=_answer_schema(spec),
        )

    async def _spec(self, replica: Presence) -> AgentSpec | None:
        return await self._runs.contracts.spec(replica.spec) if replica.spec else None


def _answer_schema(spec: AgentSpec | None) -> dict[str, Any] | None:
    """Return the schema of the agent's answers, where these are objects: clients of 2025 take nothing else as data."""
    schema = spec.output_schema if spec is not None else None
    return schema if schema is not None and schema.get("type") == "object" else None


def _is_task(context: Context, replica: Presence) -> bool:
    """Return whether a call of the agent becomes a task. Raises MCPError where it must, and the client knows no
    tasks.
    """
    asked = replica.agent.labels.get(TASKS_LABEL) if replica.agent is not None else None
    if asked == "required":
        check_knows_tasks(context)
    return asked != "forbidden" and takes_tasks(context)


def _wanted(agent: str, arguments: dict[str, Any], spec: AgentSpec | None, session: str | None) -> Submission:
    """Return what a call asks for: in the form of every agent, or in that of the agent's own `input_schema`."""
    if spec is not None and spec.input_schema is not None:
        task = arguments.get("task")
        asked = _Asked(task if isinstance(task, str) and task else spec.description, arguments)
    else:
        asked = body.parse(msgspec.json.encode(arguments), _Asked)
    session = asked.session or session
    return Submission(
        agent=agent,
        task=asked.task,
        inputs=asked.inputs,
        session=session,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


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
    """Says a person's decision on a call that waits for one. Ask the person first. `corrected` makes the call with
    these `arguments` in place of its own of the same names; so a question is answered, with `{"answer": …}`."""

    call: str
    verdict: Verdict
    feedback: str = ""
    arguments: dict[str, Any] | None = None


class _RunTool(NamedTuple):
    tool: Tool
    right: Right


def _offered(name: str, right: Right, kind: type[msgspec.Struct]) -> _RunTool:
    (_,), parts = msgspec.json.schema_components([kind])
    schema = dict(parts[kind.__name__])
    description = prose_of(schema.pop("description"))
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

    async def call(self, context: Context, asked: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        """Return the result of a call of one of TOOLS. Raise a 403 problem for a tool that the caller may not use."""
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
        return data_result(await self._runs.steering.tell(asked.run, said.text, said.mode, key, _by(context) or ""))

    async def _decide(self, context: Context, asked: Decide) -> CallToolResult:
        await self._check(context, "call", asked.call)
        told = {"verdict": asked.verdict, "feedback": asked.feedback, "arguments": asked.arguments}
        ruling = body.ruling(msgspec.json.encode(told), _by(context))
        titles = caller_of(request_of(context)).titles
        traceparent = request_of(context).headers.get("traceparent")
        return data_result(await self._runs.decisions.decide(asked.call, ruling, traceparent, titles))

    async def _check(self, context: Context, what: Kind, name: str) -> None:
        await self._runs.reach.check(caller_of(request_of(context)), what, name)


def _by(context: Context) -> str | None:
    return utf8(request_of(context).headers.get("cadre-user"))


RUN = "cadre.dev/run"
STATE = "cadre.dev/state"


def result(
    text: str, *, structured: Any = None, is_error: bool = False, meta: dict[str, Any] | None = None
) -> CallToolResult:
    """Return a result with this text."""
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=structured,
        is_error=is_error,
        _meta=meta,
    )


def data_result(value: Any) -> CallToolResult:
    """Return a result that is data, an object."""
    data = msgspec.to_builtins(value)
    return result(json.dumps(data, ensure_ascii=False), structured=data)


def problem_result(problem: Problem) -> CallToolResult:
    """Return a result that is the problem, which the calling model reads."""
    return result(f"{problem.code}: {problem.detail}", is_error=True, meta={"cadre.dev/error": problem.code})


def outcome(
    progress: Progress,
    *,
    needs_data: bool,
    asked: Mapping[str, PendingAnswer] = MappingProxyType({}),
    decides: bool = False,
) -> CallToolResult:
    """Return the answer of a run that is settled, or what it waits for: `asked`, calls that the caller reaches. With
    `needs_data` only an object is an answer. `decides`: the caller's model has the tool cadre_decide. Raise a problem
    when the run failed."""
    meta = {RUN: progress.run, STATE: progress.end.state if progress.end is not None else "waiting"}
    if progress.end is None:
        waiting = _waiting(progress.run, asked, decides=decides)
        return result(waiting, is_error=needs_data, meta=meta)
    check_success(progress)
    output = for_people(progress.end.output)
    structured = output if needs_data and isinstance(output, dict) else None
    text = answer_text(progress.end.output)
    return result(text, structured=structured, is_error=needs_data and structured is None, meta=meta)


def _waiting(run: str, held: Mapping[str, PendingAnswer], *, decides: bool) -> str:
    lines = [
        f"- call {call}: {one.request.name} {json.dumps(one.request.arguments, ensure_ascii=False)}"
        f" ({one.request.reason})"
        for call, one in held.items()
    ]
    how = (
        "Ask the person; then call cadre_decide with the call and their decision, and cadre_get_run with wait_seconds"
        " for the answer."
        if decides
        else "A person decides in the console, or with `cadre approve CALL`. Call cadre_get_run with wait_seconds for"
        " the answer."
    )
    waits = f"Run {run} has not ended: it waits for a person{' to decide on' if lines else '.'}"
    return "\n".join([waits, *lines, how])
