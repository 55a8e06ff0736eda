"""The queue of a run, a line for each task with its state."""

from collections.abc import Iterator
from typing import Any


def shown_queue(state: dict[str, Any]) -> Iterator[str]:
    """Lines of the queue as `GET /v1/runs/{id}/queue` has it; what is not begun is counted from 1."""
    for done in state["done"]:
        yield f"  {'failed' if done.get('failed') else 'done':6} {done['task']}"
    if state["begun"]:
        yield f"  begun  {state['begun']}"
    for number, task in enumerate(state["pending"], start=1):
        yield f"  {number:<6} {task}"
