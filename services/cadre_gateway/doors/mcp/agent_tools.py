"""Agents as tools: a call begins a run, and is answered by its end."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    InputResponses,
    Tool,
)

from cadre.api.runs import RunSummary
from cadre.protocol.cards import Presence
from cadre.spec.agent import AgentSpec
from cadre_gateway.access.principal import Principal, Right, caller_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.mcp.call_context import Context, check_knows_tasks, follow, request_of, takes_tasks
from cadre_gateway.doors.mcp.elicitation import Heard, ask, hear
from cadre_gateway.doors.mcp.outcome import outcome
from cadre_gateway.doors.progress import Place
from cadre_gateway.doors.rulings import questions_for
from cadre_gateway.doors.sender import RunService, begin_run, sender_of
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests import body
from cadre_gateway.requests.body import Submission
from cadre_gateway.requests.idempotency import IdempotencyKey, checked_key, request_digest
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

    async def list(self, caller: Principal) -> list[Tool]:
        """The live agents that the caller may start."""
        live = live_agents(self._runs.registry.reachable())
        reached = caller.agents | caller.teams
        return [
            await self._tool(name, live[name][-1])
            for name in sorted(live)
            if not caller.scoped or name in reached
        ]

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
        return asked or outcome(
            progress, needs_data=needs_data, asked=questions, decides=self._decides(context)
        )

    def _decides(self, context: Context) -> bool:
        return self._offers_decide and caller_of(request_of(context)).may("decide")

    async def schema_of(self, agent: str) -> dict[str, Any] | None:
        """The schema of the answers of a live agent, if it has one."""
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
    """The schema of the agent's answers, where these are objects: clients of 2025 take nothing else as data."""
    schema = spec.output_schema if spec is not None else None
    return schema if schema is not None and schema.get("type") == "object" else None


def _is_task(context: Context, replica: Presence) -> bool:
    """Whether a call of the agent becomes a task. Raises MCPError where it must, and the client knows no tasks."""
    asked = replica.agent.labels.get(TASKS_LABEL) if replica.agent is not None else None
    if asked == "required":
        check_knows_tasks(context)
    return asked != "forbidden" and takes_tasks(context)


def _wanted(agent: str, arguments: dict[str, Any], spec: AgentSpec | None, session: str | None) -> Submission:
    """What a call asks for: in the form of every agent, or in that of the agent's own `input_schema`."""
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
