"""What a remote agent tells, in lines for a person who looks on."""

from collections.abc import Iterator, Mapping
from typing import Any


def lines_of(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The lines of an event of the kind."""
    match name:
        case "remote.updated":
            text = f": {told['text']}" if told.get("text") else ""
            yield f"remote task {told.get('task')} is {str(told.get('state')).replace('_', ' ')}{text}"
        case "remote.progressed":
            for one in told.get("activity") or []:
                yield _line_of(one)
        case "remote.unreachable":
            yield f"the remote agent is out of reach: {told.get('reason')}"
        case "remote.cancel_requested":
            yield "the remote agent is told to end its task"


def _line_of(one: Mapping[str, Any]) -> str:
    match one.get("type"):
        case "tool":
            return f"  {one.get('title') or one.get('id')}: {str(one.get('status')).replace('_', ' ')}"
        case "plan":
            steps = [f"{step.get('content')} ({step.get('status')})" for step in one.get("entries") or []]
            return f"  plan: {'; '.join(steps)}"
        case kind:
            return f"  {'thinks' if kind == 'thought' else 'says'}: {one.get('text')}"
