"""What models write that answer thoughts and one tool as JSON: as they should, or nearly so."""

import json
import random
import re
from typing import Any

import msgspec

from cadre.engine.model_request import ChatMessage
from simulation.plans import Plan

_CURRENT = re.compile(r"Current task: part (\d+)")
_PART = re.compile(r"part (\d+)")


def as_iteration(plan: Plan, step: int, chance: random.Random) -> str:
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


def part_in(messages: list[ChatMessage]) -> int | None:
    """The part of its plan that a task-queue agent's model is to do; None where it is asked about the queue."""
    found = _CURRENT.search(str(messages))
    return int(found[1]) if found else None


def queue_answer(plan: Plan, messages: list[ChatMessage], chance: random.Random) -> str:
    """What the model of a task-queue agent says: of a task, or of the queue, about which it may be wrong."""
    text = str(messages)
    part = part_in(messages)
    if part is None and "Write the answer for" not in text and chance.random() < 0.1:
        return "Let me think."
    if part is not None:
        if plan.nonsense == part:
            return "Let me think."
        return as_iteration(plan, part, chance) if part < len(plan.steps) else _written("", {}, chance)
    if "You break goals down" in text:
        return json.dumps([f"part {n}" for n in range(min(3, max(1, len(plan.steps))))])
    if "The task done last" in text:
        known = max(int(one) for one in _PART.findall(text))
        return json.dumps(
            [f"part {known + 1 - (chance.random() < 0.2)}"] if known + 1 < len(plan.steps) else []
        )
    if "Put the tasks that wait" in text:
        waiting = _PART.findall(text[text.index("Tasks that wait") :])
        chance.shuffle(waiting)
        return json.dumps([f"part {one}" for one in waiting[1:]] + ["part of a dream"])
    return plan.answer
