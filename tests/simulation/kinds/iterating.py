"""Agents whose models answer thoughts and one tool as JSON: as they should, or nearly so."""

import json
import random
import re
from typing import Any

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.journal.events import RequestedCall
from cadre.kinds.stepwise import END_PLAN
from cadre.ports import ModelReply
from simulation.kinds.simulated import Question, SimulatedKind, said, taken
from simulation.plans import Plan, call_of

_CURRENT = re.compile(r"Current task: part (\d+)")
_PART = re.compile(r"part (\d+)")


class Goals(SimulatedKind):
    """The kind `goals`."""

    calls_per_step = (1,)

    def varied(self, calls: list[RequestedCall], chance: random.Random) -> list[RequestedCall]:
        return [call_of("think", task_description="What now?")] if chance.random() < 0.2 else calls

    def reply(self, asked: Question) -> ModelReply:
        if END_PLAN not in asked.request.stop and "task_description" not in str(asked.request.messages[0]["content"]):
            return said("A thought.")
        step = taken(asked)
        return said("Let me think." if step is None else _iteration(asked.plan, step, asked.chance))


class TaskQueue(Goals):
    """The kind `task_queue`: a task for each step of the plan."""

    def step(self, request: ModelRequest, step: int) -> int:
        return _part_in(request) or 0

    def reply(self, asked: Question) -> ModelReply:
        return said(_queue_answer(asked, _part_in(asked.request)))


def _part_in(request: ModelRequest) -> int | None:
    """The part of the plan that the model is to do; None where it is asked about the queue."""
    found = _CURRENT.search(str(request.messages))
    return int(found[1]) if found else None


def _queue_answer(asked: Question, part: int | None) -> str:
    """Return what the model says: of a task, or of the queue, about which it may be wrong."""
    plan, chance, text = asked.plan, asked.chance, str(asked.request.messages)
    if part is None and "Write the answer for" not in text and chance.random() < 0.1:
        return "Let me think."
    if part is not None:
        if plan.nonsense == part:
            return "Let me think."
        return _iteration(plan, part, chance) if part < len(plan.steps) else _written("", {}, chance)
    if "You break goals down" in text:
        return json.dumps([f"part {n}" for n in range(min(3, max(1, len(plan.steps))))])
    if "The task done last" in text:
        known = max(int(one) for one in _PART.findall(text))
        return json.dumps([f"part {known + 1 - (chance.random() < 0.2)}"] if known + 1 < len(plan.steps) else [])
    if "Put the tasks that wait" in text:
        waiting = _PART.findall(text[text.index("Tasks that wait") :])
        chance.shuffle(waiting)
        return json.dumps([f"part {one}" for one in waiting[1:]] + ["part of a dream"])
    return plan.answer


def _iteration(plan: Plan, step: int, chance: random.Random) -> str:
    """The plan's step, or its end."""
    if step >= len(plan.steps):
        return _written("finish", {"response": plan.answer}, chance)
    (call,) = plan.steps[step]
    assert isinstance(call.arguments, str)
    try:
        arguments: Any = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        arguments = call.arguments  # as broken as it is
    return _written(call.name, arguments, chance)


def _written(tool: str, arguments: Any, chance: random.Random) -> str:
    name = chance.choice((tool, tool, tool.upper(), f" {tool} "))
    answer = {"thoughts": {"text": "Next.", "speak": "On it."}, "tool": {"name": name, "args": arguments}}
    text = json.dumps(answer)
    form = chance.random()
    if form < 0.2:
        return f"```json\n{text}\n```"
    if form < 0.3:
        return repr(answer)
    return text[:-1] if form < 0.4 else text
