"""A solution in lines, for a person who looks on."""

from collections.abc import Iterator, Mapping
from typing import Any

from cadre.engine.context.observation import observation_of


def lines_of(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The lines of an event or a step of the kind: calls as they were proposed, and what a person made of them."""
    if name == "solution.form_refused":
        yield f"the endpoint refuses the form of solutions; asked for from now on: {told.get('form')}"
        return
    calls = told.get("calls") or []
    for number, call in enumerate((call for call in calls if not call.get("implicit")), 1):
        yield f"proposes {number}: {call.get('name')} {observation_of(call.get('arguments') or {})}"
    for call in calls:
        if call.get("implicit"):
            arguments = observation_of(call.get("arguments") or {})
            yield f"says of itself: {call.get('name')} {arguments} -> {observation_of(call.get('outcome'))}"
    if told.get("output") is not None:
        yield f"output so far: {observation_of(told['output'])}" if calls else "proposes an answer"
    if told.get("review"):
        yield str(told["review"])
