"""What models write that answer thoughts and one tool as JSON: as they should, or nearly so."""

import json
import random
from typing import Any

import msgspec

from simulation.plans import Plan


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
