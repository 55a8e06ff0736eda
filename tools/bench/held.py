"""Agents whose every run waits: for a person's word on a call, for a signal, for a far day, for its own parts."""

import json
from typing import Any, NamedTuple

import msgspec

from bench.instant import InstantModel, call
from cadre.engine.model_request import ModelRequest
from cadre.kinds.goals.records import GoalsSpec
from cadre.kinds.plan.section import PlanSpec, PlanStep
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.ports import ModelReply
from cadre.protocol.cards import ToolCard
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections

REFUND = ToolCard(
    name="refund",
    description="Pays money back.",
    input_schema={
        "type": "object",
        "properties": {"amount": {"type": "number"}, "reason": {"type": "string"}},
        "required": ["amount"],
    },
)
_ARGUMENTS = {"amount": 500, "reason": "The order never came."}
_ITERATION = json.dumps({"thoughts": {"text": "Pay."}, "tool": {"name": "refund", "args": _ARGUMENTS}})
_SOLUTION = json.dumps({"solution": {"calls": [{"name": "refund", "arguments": _ARGUMENTS}], "output": None}})
_CODE = "I pay.\n<code>\nrefund(amount=500, reason='The order never came.')\n</code>"


class WaitingKind(NamedTuple):
    """The way in which runs of a kind come to wait."""

    kind: str
    section: Any = None
    says: tuple[str, ...] = ()
    """The answers of its model; a call of the API where there is nothing."""


def _flow(start: str, **steps: Any) -> WorkflowSpec:
    return msgspec.convert({"start": start, "steps": steps}, WorkflowSpec)


WAITING: dict[str, WaitingKind] = {
    "tool_calling": WaitingKind("tool_calling"),
    "goals": WaitingKind("goals", GoalsSpec(goals=["Pay."]), (_ITERATION,)),
    "task_queue": WaitingKind("task_queue", TaskQueueSpec(goals=["Pay."]), ('["pay", "write"]', _ITERATION)),
    "solution": WaitingKind("solution", None, (_SOLUTION,)),
    "code": WaitingKind("code", None, (_CODE,)),
    "plan": WaitingKind("plan", PlanSpec(steps=[PlanStep(action="refund", args=_ARGUMENTS)])),
    "workflow, a person": WaitingKind("workflow", _flow("ask", ask={"approve": "Pay?"})),
    "workflow, a signal": WaitingKind("workflow", _flow("wait", wait={"wait": {"signal": "paid"}})),
    "workflow, a far day": WaitingKind("workflow", _flow("wait", wait={"wait": "90d"})),
    "workflow, two parts": WaitingKind(
        "workflow",
        _flow(
            "both",
            both={"parallel": {"branches": {"a": "one", "b": "two"}}},
            one={"wait": "90d"},
            two={"approve": "Pay?"},
        ),
    ),
}


def agent_of(name: str) -> AgentSpec:
    """The agent whose runs wait so."""
    kind, section, _ = WAITING[name]
    own = sections(section) if section is not None else {}
    return AgentSpec(
        name="clerk", description="Waits.", kind=kind, tools=["refund"], approvals={"refund": "always"}, **own
    )


def model_of(name: str) -> InstantModel:
    """The model that gets them there."""
    says = WAITING[name].says

    def reply(request: ModelRequest) -> ModelReply:
        if not says:
            return call("refund", **_ARGUMENTS)
        first = "You break goals down" in str(request.messages)
        return ModelReply(content=says[0] if first else says[-1])

    return InstantModel(reply)
