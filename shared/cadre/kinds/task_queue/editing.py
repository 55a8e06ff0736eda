"""What people edit of a queue while its run goes on: tasks not begun are added, dropped, reworded and moved."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.edits import Editable, EditNotAllowed
from cadre.kinds.task_queue.queue import MAX_TASK_CHARS, plain
from cadre.kinds.task_queue.records import QueueState, TaskQueueSpec

FORMS = "{op: add, task, at?}, {op: drop, task}, {op: edit, task, text} and {op: move, task, at}"


def editable_queue(state: QueueState) -> Editable:
    """The queue as people see it; `begun` is the task in hand, which no edit changes."""
    begun = _begun(state)
    found = {
        "stage": state.stage,
        "begun": state.pending[0] if begun else None,
        "pending": state.pending[begun:],
        "done": state.done,
    }
    return Editable("queue", state.version, found)


def edited_tasks(
    state: QueueState, operations: Sequence[dict[str, Any]], section: TaskQueueSpec
) -> tuple[list[str], list[str]]:
    """The pending tasks behind the operations, and the new ones among them. Raises EditNotAllowed."""
    begun = state.pending[: _begun(state)]
    waiting, added = state.pending[len(begun) :], list[str]()
    for operation in operations:
        match operation:
            case {"op": "add", "task": str() as task, **place} if place.keys() <= {"at"}:
                text = _new(task, [*begun, *waiting], state)
                waiting.insert(_place(place.get("at", len(waiting)), waiting), text)
                added.append(text)
            case {"op": "drop", "task": str() as task, **rest} if not rest:
                del waiting[_index(task, waiting, begun)]
            case {"op": "edit", "task": str() as task, "text": str() as text, **rest} if not rest:
                at = _index(task, waiting, begun)
                others = [*begun, *waiting[:at], *waiting[at + 1 :]]
                old, waiting[at] = waiting[at], _new(text, others, state)
                added = [waiting[at] if one == old else one for one in added]
            case {"op": "move", "task": str() as task, "at": place, **rest} if not rest:
                moved = waiting.pop(_index(task, waiting, begun))
                waiting.insert(_place(place, waiting), moved)
            case _:
                raise EditNotAllowed(f"no such operation: {operation}; there are {FORMS}")
    added = [task for task in added if task in waiting]
    if state.made + len(added) > section.most:
        raise EditNotAllowed(f"a run has {section.most} tasks at most (task_queue.most)")
    return [*begun, *waiting], added


def _begun(state: QueueState) -> int:
    """How many of the pending tasks are begun: the first, while somebody is at it."""
    return 1 if state.stage == "analyse" and state.pending else 0


def _new(task: str, others: Sequence[str], state: QueueState) -> str:
    text = task.strip()
    if not text or len(text) > MAX_TASK_CHARS:
        raise EditNotAllowed(f"a task has 1 to {MAX_TASK_CHARS} characters")
    if plain(text) in {plain(one) for one in [*others, *(done.task for done in state.done)]}:
        raise EditNotAllowed(f"the queue has, or had, the task {text!r}")
    return text


def _index(task: str, waiting: Sequence[str], begun: Sequence[str]) -> int:
    if plain(task) in map(plain, begun):
        raise EditNotAllowed(f"the task {task!r} is begun: it cannot be changed any more", "edit-too-late")
    names = [*map(plain, waiting)]
    if plain(task) not in names:
        raise EditNotAllowed(f"no such task waits: {task!r}")
    return names.index(plain(task))


def _place(at: Any, waiting: Sequence[str]) -> int:
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(waiting):
        raise EditNotAllowed(f"`at` is a place in the queue, from 0 to {len(waiting)}: {at!r}")
    return at
