"""The queue of a run: what events make of it, what the words of a model come to, and what people edit of it."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.answers.json_text import ReadingError, read_array
from cadre.engine.context.text_size import clip
from cadre.engine.kind import Editable, EditNotAllowed
from cadre.journal.parts import JournalEvent
from cadre.journal.run import ActionStep, Step
from cadre.kinds.iteration.view import as_text
from cadre.kinds.task_queue.records import (
    DoneTask,
    QueueAnswerRefused,
    QueueChanged,
    QueueEdited,
    QueueState,
    QueueStep,
    QueueTaskDone,
    QueueTaskTried,
    Stage,
    TaskQueueSpec,
)

MAX_TASK_CHARS = 1_000
MAX_RESULT_CHARS = 1_500

QUEUE_EVENTS = (QueueChanged, QueueTaskTried, QueueTaskDone, QueueAnswerRefused, QueueEdited)


def take(state: QueueState, event: JournalEvent, section: TaskQueueSpec) -> None:
    """Make the event true of the queue."""
    match event:
        case QueueChanged():
            state.pending, state.tries = list(event.pending), 0
            state.made, state.version = state.made + len(event.added), state.version + 1
            state.stage = _behind(state, event.reason, section)
        case QueueTaskTried():
            state.tries += 1
        case QueueTaskDone():
            done = DoneTask(task=event.task, result=event.result, failed=event.failed)
            state.pending, state.done, state.tries = state.pending[1:], [*state.done, done], 0
            state.version += 1
            grows = section.create and state.made < section.most
            state.stage = "create" if grows else _behind(state, "create", section)
        case QueueEdited():
            state.pending = list(event.pending)
            state.made, state.version = state.made + len(event.added), state.version + 1
            if state.stage == "conclude" and state.pending:
                state.stage, state.tries = "analyse", 0
        case QueueAnswerRefused(given_up=False):
            state.tries += 1
        case QueueAnswerRefused():
            state.tries = 0
            state.stage = _behind(state, event.purpose, section)
        case _:
            pass


def rebuilt(steps: Sequence[Step], section: TaskQueueSpec) -> QueueState:
    """The queue behind steps that a fork begins with."""
    owns = [step.own for step in steps if isinstance(step, ActionStep) and isinstance(step.own, QueueStep)]
    state = QueueState()
    for event in (event for own in owns for event in own.events):
        take(state, event, section)
    return state


def _behind(state: QueueState, stage: Stage, section: TaskQueueSpec) -> Stage:
    """Return what comes behind a stage, with the queue as it is."""
    if not state.pending:
        return "conclude"
    orders = stage == "create" and section.prioritize and len(state.pending) > 1
    return "prioritize" if orders else "analyse"


def read_tasks(content: str) -> list[str]:
    """The tasks that an answer names, each once. Raises ReadingError."""
    found: dict[str, str] = {}
    for one in read_array(content, "tasks"):
        text = clip(_text(one).strip(), MAX_TASK_CHARS)
        if text:
            found.setdefault(plain(text), text)
    return list(found.values())


def first_tasks(content: str, state: QueueState, section: TaskQueueSpec) -> list[str]:
    """The tasks to begin with, no more than may be. Raises ReadingError, also if the answer names no task."""
    there = {plain(task) for task in state.pending}
    read = read_tasks(content)
    tasks = [task for task in read if plain(task) not in there]
    if not read:
        raise ReadingError("Your answer names no task.")
    return tasks[: min(section.initial, section.most - state.made)]


def new_task(content: str, state: QueueState) -> list[str]:
    """Return a list of the first task of an answer that the queue has not had, or []. Raises ReadingError."""
    known = {plain(task) for task in [*state.pending, *(done.task for done in state.done)]}
    return [task for task in read_tasks(content) if plain(task) not in known][:1]


def in_order(content: str, pending: Sequence[str]) -> list[str]:
    """The pending tasks in the order of an answer: what it leaves out comes last, what it invents is dropped.

    Raises ReadingError.
    """
    left = {plain(task): task for task in pending}
    named = [left.pop(name) for task in read_tasks(content) if (name := plain(task)) in left]
    return [*named, *left.values()]


def plain(task: str) -> str:
    """A task as tasks are compared: without case, and with single blanks."""
    return " ".join(task.split()).casefold()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = next((value[key] for key in ("task", "text", "name", "description") if key in value), value)
    return as_text(value)


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
    """Return how many of the pending tasks are begun: the first, while it is worked on."""
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
