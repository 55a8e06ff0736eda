"""What the list shows of a run: pure, computed from its entries one by one."""

from cadre.api.runs import RunSummary
from cadre.engine.budget import gained
from cadre.journal.entry import Entry
from cadre.journal.events import (
    AnyEvent,
    DelegateFinished,
    EditApplied,
    EditRefused,
    MessageReceived,
    ModelAnswered,
    ModelCalled,
    ModelDeferred,
    RecordIgnored,
    RunAccepted,
    RunFinished,
    SignalReceived,
    StepFinished,
    StepStarted,
    ToolAnswered,
    WaitStarted,
)
from cadre.protocol.messages import RunState, Task
from cadre.protocol.usage import Usage

MAX_TASK_CHARS = 200

_LATE = (RecordIgnored, ToolAnswered, DelegateFinished)
_WITHOUT_CONSEQUENCE = (RecordIgnored, SignalReceived, MessageReceived, EditApplied, EditRefused)
"""They say nothing of what the run is about; what follows from them is told beside them."""


def end_state(entry: Entry, run: str) -> RunState | None:
    """The state in which the run has ended with this entry; None when it goes on."""
    if entry.run != run:
        return None
    return next((event.state for event in entry.events if isinstance(event, RunFinished)), None)


def starts_no_run(entry: Entry) -> bool:
    """Return whether a journal that begins so has no run: something came late, for a run that was never here or is
    erased."""
    return all(isinstance(event, _LATE) for event in entry.events)


def summary_of_task(task: Task) -> RunSummary:
    """The summary of a run that no agent has taken up yet."""
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
    """The summary of a run before the events of its first known entry."""
    return RunSummary(
        id=entry.run,
        tree=entry.tree,
        parent=entry.parent,
        agent=entry.agent,
        asked_at=entry.at,
        started_at=entry.at,
    )


def apply_event(summary: RunSummary, event: AnyEvent, at: float) -> None:
    """Changes the summary by an event of an entry that was written at `at` (Unix seconds)."""
    if summary.finished:
        return
    if isinstance(event, _WITHOUT_CONSEQUENCE):
        summary.usage = summary.usage + gained([event])
        return
    summary.state, summary.waiting_for = "running", None
    match event:
        case RunAccepted(task=task):
            summary.revision = event.revision
            summary.task, summary.session, summary.started_at = shortened(task.task), task.session, at
            summary.user, summary.labels, summary.asked_at = _user(task), task.labels, task.at
        case ModelCalled(purpose="act", step=step) | StepStarted(step=step):
            summary.step = step
        case ModelDeferred():
            summary.state, summary.waiting_for = "waiting", "model"
        case WaitStarted(signal=signal):
            summary.state, summary.waiting_for = "waiting", _awaited(signal)
        case ModelAnswered(usage=usage):
            summary.usage = summary.usage + usage + Usage(model_calls=1)
        case DelegateFinished(usage=usage):
            summary.usage = summary.usage + usage
        case StepFinished():
            summary.usage = summary.usage + Usage(steps=1)
        case RunFinished():
            summary.state, summary.error, summary.ended_at = event.state, event.error, at
            summary.step, summary.usage = event.steps, event.usage
        case _:
            summary.usage += event.used() or Usage()


def _user(task: Task) -> str | None:
    return task.origin.user if task.origin is not None else None


def _awaited(signal: str | None) -> str:
    """What a run waits for that its agent's kind has put off."""
    return f"signal {signal}" if signal is not None else "time"


def shortened(text: str) -> str:
    """At most MAX_TASK_CHARS of a task."""
    return text if len(text) <= MAX_TASK_CHARS else text[: MAX_TASK_CHARS - 1] + "…"
