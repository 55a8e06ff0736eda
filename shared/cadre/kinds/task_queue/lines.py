"""A queue of tasks in lines, for a person who looks on."""

from collections.abc import Iterator, Mapping
from typing import Any


def lines_of(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The lines of an event or a step of the kind: tasks with their states."""
    match name:
        case "queue.changed":
            pending, added = told.get("pending") or [], told.get("added") or []
            yield f"queue, {told.get('reason')}: {len(pending)} pending"
            for number, task in enumerate(pending, 1):
                yield f"  {number}. {task}" + (" (new)" if task in added else "")
        case "queue.task_tried":
            yield f"to be tried again: {told.get('task')}: {told.get('reason')}"
        case "queue.task_done":
            yield f"{'failed' if told.get('failed') else 'done'}: {told.get('task')}: {told.get('result', '')}"
        case "queue.answer_refused":
            what = "is done without" if told.get("given_up") else "is asked for again"
            yield f"an answer about the queue ({told.get('purpose')}) {what}: {told.get('reason')}"
        case _:
            for event in told.get("events") or []:
                yield from lines_of(str(event.get("type")), event)
