"""Agents that propose solutions: each step of the plan is one, right or almost so."""

import random
from typing import Any

import msgspec

from cadre.errors import ModelRefused
from cadre.journal.events import RequestedCall
from cadre.kinds.solution.records import SolutionSpec
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from simulation.kinds.simulated import Question, SimulatedKind, said, taken


class Solution(SimulatedKind):
    """The kind `solution`."""

    def drawn(self, spec: AgentSpec, chance: random.Random, *, poison: bool) -> AgentSpec:
        section = SolutionSpec(
            approve=chance.choice(("never", "never", "always", "when: 'book' in names")),
            at_expiry=chance.choice(("reject", "approve", "end")),
        )
        form = chance.choice(("schema", "object", "auto"))
        model = msgspec.structs.replace(spec.model, structured=form)
        return msgspec.structs.replace(spec, model=model, **sections(section))

    def reply(self, asked: Question) -> ModelReply:
        request, plan = asked.request, asked.plan
        if request.schema is None and not request.json_object:
            return super().reply(asked)
        if request.schema is not None and asked.spec.model.structured == "auto":
            raise ModelRefused("response_format: json_schema is not known here", status=400, about_form=True)
        step = taken(asked)
        if step is None:
            return said("Let me think.")
        calls = plan.steps[step] if step < len(plan.steps) else []
        output = plan.answer if step >= len(plan.steps) else None
        return said(_written(calls, output, asked.chance.choice(("json", "fence", "python", "open"))))


def _written(calls: list[RequestedCall], output: str | None, form: str) -> str:
    """The calls as a solution: as JSON, in a fence, as Python writes it, or without its last brackets."""
    solution = {"calls": [{"name": one.name, "arguments": _arguments(one)} for one in calls]}
    whole = {"solution": {**solution, "output": output}}
    text = msgspec.json.encode(whole).decode()
    match form:
        case "fence":
            return f"I propose:\n```json\n{text}\n```"
        case "python":
            return repr(whole)
        case "open":
            return text.removesuffix("}}")
        case _:
            return text


def _arguments(call: RequestedCall) -> Any:
    """As an object, or as the broken text that they are."""
    assert isinstance(call.arguments, str)
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return call.arguments
