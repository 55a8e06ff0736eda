"""Agents as tools: a call begins a run, and is answered by its end."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from mcp_types import CallToolResult, Tool

from cadre.api.runs import RunSummary
from cadre.protocol.cards import Presence
from cadre.protocol.topology import run_id_of
from cadre_gateway.access.principal import Principal, Right
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.mcp.call_context import Context, request_of
from cadre_gateway.doors.mcp.following import follow
from cadre_gateway.doors.mcp.outcome import outcome
from cadre_gateway.doors.run_service import RunService
from cadre_gateway.doors.sender import begin_run, sender_of
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests import body
from cadre_gateway.requests.body import Submission
from cadre_gateway.requests.idempotency import IdempotencyKey, checked_key
from cadre_gateway.requests.problems import Problem

RIGHT: Right = "act"
KEY = "cadre.dev/idempotency-key"
_NOT_FOUND = 404
_CANCEL_SECONDS = 10.0

_INPUT = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What the agent shall do, with all that it needs to know."},
        "arguments": {"type": "object", "description": "Values that the agent is handed beside the task."},
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
    arguments: dict[str, Any] = {}
    session: str | None = None


class AgentTools:
    """Lists agents as tools, and has them work."""

    def __init__(self, runs: RunService) -> None:
        self._runs = runs
        self._answers = Answers(runs.lookup, runs.feeds)

    async def list(self, caller: Principal) -> list[Tool]:
        """The live agents that the caller may start."""
        live = live_agents(self._runs.registry.presences())
        reached = caller.agents | caller.teams
        return [
            await self._tool(name, live[name][-1])
            for name in sorted(live)
            if not caller.scoped or name in reached
        ]

    async def call(
        self, context: Context, agent: str, arguments: dict[str, Any], *, as_task: bool
    ) -> CallToolResult | RunSummary:
        """Begins a run, or finds the one of the same key, and follows it to its answer. When the call is given up, a
        run without a key of the caller's is cancelled: nobody could ask for it again. `as_task` the run goes on, and
        is returned. Raises a problem."""
        live = live_agents(self._runs.registry.presences()).get(agent)
        if live is None:
            raise Problem(404, "unknown-agent", f"no live agent is named {agent!r}")
        request = request_of(context)
        meta: dict[str, Any] = dict(context.meta or {})
        own = checked_key(_text(meta.get(KEY)) or request.headers.get("idempotency-key"))
        wanted = _wanted(agent, arguments)
        digest = hashlib.sha256(b"mcp\n" + msgspec.json.encode(wanted, order="sorted")).hexdigest()
        key = IdempotencyKey(own or secrets.token_hex(16), digest)
        run = run_id_of(agent, key.key)
        sender = sender_of(request)
        if (traceparent := _text(meta.get("traceparent"))) is not None:
            sender = replace(sender, traceparent=traceparent)
        try:
            await begin_run(self._runs, sender, wanted, key)
            if as_task:
                return await self._runs.lookup.find(run)
            progress = await follow(self._answers, run, context)
        except anyio.get_cancelled_exc_class():
            if own is None and not self._runs.feeds.draining:
                await self._give_up(run)
            raise
        return outcome(progress, needs_data=await self._schema(live[-1]) is not None)

    async def schema_of(self, agent: str) -> dict[str, Any] | None:
        """The schema of the answers of a live agent, if it has one."""
        live = live_agents(self._runs.registry.presences()).get(agent)
        return await self._schema(live[-1]) if live else None

    async def _give_up(self, run: str) -> None:
        with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
            try:
                await self._runs.run_end.cancel(run, "its caller has cancelled the call")
            except Problem as problem:
                if problem.status != _NOT_FOUND:
                    raise

    async def _tool(self, name: str, replica: Presence) -> Tool:
        assert replica.agent is not None
        return Tool(
            name=name,
            description=replica.agent.description,
            input_schema=_INPUT,
            output_schema=await self._schema(replica),
        )

    async def _schema(self, replica: Presence) -> dict[str, Any] | None:
        """The schema of the agent's answers, where these are objects: clients of 2025 take nothing else as data."""
        spec = await self._runs.contracts.spec(replica.spec) if replica.spec else None
        schema = spec.output_schema if spec is not None else None
        return schema if schema is not None and schema.get("type") == "object" else None


def _wanted(agent: str, arguments: dict[str, Any]) -> Submission:
    asked = body.parse(msgspec.json.encode(arguments), _Asked)
    return Submission(
        agent=agent,
        task=asked.task,
        additional_args=asked.arguments,
        session=asked.session,
        reset=asked.session is None,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
