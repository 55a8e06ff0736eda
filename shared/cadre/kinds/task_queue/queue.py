"""The queue of a run: what each event makes of it, and what a model's words about it come to."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.answers.json_text import ReadingError, read_array
from cadre.engine.context.observation import clip
from cadre.journal.parts import JournalEvent
from cadre.journal.steps import ActionStep, Step
from cadre.kinds.iteration.parse import as_text
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
    """Makes the event true of the queue."""
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
    """What comes behind a stage, with the queue as it is."""
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
    """The tasks to begin with, no more than may be. Raises ReadingError, also where there is none."""
    there = {plain(task) for task in state.pending}
    read = read_tasks(content)
    tasks = [task for task in read if plain(task) not in there]
    if not read:
        raise ReadingError("Your answer names no task.")
    return tasks[: min(section.initial, section.most - state.made)]


def new_task(content: str, state: QueueState) -> list[str]:
    """The first task of an answer that the queue has not had; none where there is none. Raises ReadingError."""
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
