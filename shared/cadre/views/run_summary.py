"""Summarize a run for lists: pure, computed from its entries one by one."""

from collections.abc import Callable
from typing import Any

from cadre.api.runs import RunSummary
from cadre.engine.budget import gained
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.parts import JournalEvent
from cadre.protocol.messages import RunState, Task
from cadre.protocol.usage import Usage

MAX_TASK_CHARS = 200

_LATE = (ev.RecordIgnored, ev.ToolAnswered, ev.DelegateFinished)
_WITHOUT_CONSEQUENCE = frozenset(
    (ev.RecordIgnored, ev.SignalReceived, ev.MessageReceived, ev.EditApplied, ev.EditRefused)
)
"""They say nothing of what the run is about; what follows from them stands next to them in their entry."""


def end_of(entry: Entry, run: str) -> ev.RunFinished | None:
    """Return the end that the run has come to with this entry; None when it goes on."""
    if entry.run != run:
        return None
    return next((event for event in entry.events if type(event) is ev.RunFinished), None)


def end_state(entry: Entry, run: str) -> RunState | None:
    """Return the state in which the run has ended with this entry; None when it goes on."""
    end = end_of(entry, run)
    return end.state if end is not None else None


def starts_no_run(entry: Entry) -> bool:
    """Return whether a journal that begins so has no run: something came late, for a run that was never here or is
    erased."""
    return all(type(event) in _LATE for event in entry.events)


def summary_of_task(task: Task) -> RunSummary:
    """Return the summary of a run that no agent has taken up yet."""
    return RunSummary(
        id=task.run,
        tree=task.tree,
        parent=task.reply_to.run if task.reply_to else None,
        agent=task.agent,
        state="queued",
        task=shortened(task.task),
        asked_at=task.at,
        started_at=task.at,
        session=task.session,
        user=_user(task),
        labels=task.labels,
    )


def first_summary(entry: Entry) -> RunSummary:
    """Return the summary of a run before the events of its first known entry."""
    return RunSummary(
        id=entry.run,
        tree=entry.tree,
        parent=entry.parent,
        agent=entry.agent,
        asked_at=entry.at,
        started_at=entry.at,
    )


def apply_event(summary: RunSummary, event: JournalEvent, at: float) -> None:
    """Change the summary by an event of an entry that was written at `at` (Unix seconds)."""
    if summary.ended_at is not None:
        return
    kind = type(event)
    if kind in _WITHOUT_CONSEQUENCE:
        summary.usage = summary.usage + gained([event])
        return
    summary.state, summary.waiting_for = "running", None
    change = _CHANGES.get(kind)
    if change is not None:
        change(summary, event, at)
    elif (used := event.describe().used) is not None:
        summary.usage = summary.usage + used


def _accept(summary: RunSummary, event: ev.RunAccepted, at: float) -> None:
    task = event.task
    summary.revision = event.revision
    summary.task, summary.session, summary.started_at = shortened(task.task), task.session, at
    summary.user, summary.labels, summary.asked_at = _user(task), task.labels, task.at


def _call(summary: RunSummary, event: ev.ModelCalled, at: float) -> None:
    if event.purpose == "act":
        summary.step = event.step


def _start_step(summary: RunSummary, event: ev.StepStarted, at: float) -> None:
    summary.step = event.step


def _defer(summary: RunSummary, event: ev.ModelDeferred, at: float) -> None:
    summary.state, summary.waiting_for = "waiting", "model"


def _wait(summary: RunSummary, event: ev.WaitStarted, at: float) -> None:
    awaited = f"signal {event.signal}" if event.signal is not None else "time"
    summary.state, summary.waiting_for = "waiting", awaited


def _answer(summary: RunSummary, event: ev.ModelAnswered, at: float) -> None:
    summary.usage = summary.usage + event.usage + Usage(model_calls=1)


def _join(summary: RunSummary, event: ev.DelegateFinished, at: float) -> None:
    summary.usage = summary.usage + event.usage


def _end_step(summary: RunSummary, event: ev.StepFinished, at: float) -> None:
    summary.usage = summary.usage + Usage(steps=1)


def _end(summary: RunSummary, event: ev.RunFinished, at: float) -> None:
    summary.state, summary.error, summary.ended_at = event.state, event.error, at
    summary.step, summary.usage = event.steps, event.usage


_CHANGES: dict[type[JournalEvent], Callable[[RunSummary, Any, float], None]] = {
    ev.RunAccepted: _accept,
    ev.ModelCalled: _call,
    ev.StepStarted: _start_step,
    ev.ModelDeferred: _defer,
    ev.WaitStarted: _wait,
    ev.ModelAnswered: _answer,
    ev.DelegateFinished: _join,
    ev.StepFinished: _end_step,
    ev.RunFinished: _end,
}


def _user(task: Task) -> str | None:
    return task.origin.user if task.origin is not None else None


def shortened(text: str) -> str:
    """Return at most MAX_TASK_CHARS of a task."""
    return text if len(text) <= MAX_TASK_CHARS else text[: MAX_TASK_CHARS - 1] + "…"
