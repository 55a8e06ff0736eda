"""The events of a run as classes: `match event.body: case StepFinished(step=step): …` (docs/http-api.md).

Those of the kinds of agents are here too, by the names of their classes, also of kinds that others have installed.
"""

# ruff: noqa: I001 - one import for all names that are exported again
from typing import TYPE_CHECKING, Any, get_args

from cadre.client.events import Event as Event
from cadre.journal.events import (
    AnswerChecked as AnswerChecked,
    AnswerProposed as AnswerProposed,
    ApprovalDecided as ApprovalDecided,
    ApprovalRequested as ApprovalRequested,
    CallDropped as CallDropped,
    CallRefused as CallRefused,
    CallTimedOut as CallTimedOut,
    CancelRequested as CancelRequested,
    CommonEvent,
    ContextOverflowed as ContextOverflowed,
    DelegateFinished as DelegateFinished,
    DelegateStarted as DelegateStarted,
    EditApplied as EditApplied,
    EditRefused as EditRefused,
    GraceStarted as GraceStarted,
    HistorySummarized as HistorySummarized,
    MemoryAsked as MemoryAsked,
    MemoryRecalled as MemoryRecalled,
    MessageReceived as MessageReceived,
    ModelAnswered as ModelAnswered,
    ModelCalled as ModelCalled,
    ModelDeferred as ModelDeferred,
    ToolsetChanged as ToolsetChanged,
    RecordIgnored as RecordIgnored,
    RunAccepted as RunAccepted,
    RunFinished as RunFinished,
    SignalReceived as SignalReceived,
    StepFinished as StepFinished,
    StepStarted as StepStarted,
    ToolAnswered as ToolAnswered,
    ToolCalled as ToolCalled,
    ToolsPlanned as ToolsPlanned,
    PolicyDecided as PolicyDecided,
    ToolPaused as ToolPaused,
    WaitFinished as WaitFinished,
    WaitStarted as WaitStarted,
)
from cadre.journal.parts import JournalEvent as JournalEvent
from cadre.protocol.deltas import Delta as Delta
from cadre.journal.unions import close
from cadre.options import missing_name
from cadre.spec.kinds import once

if TYPE_CHECKING:
    __all__: list[str]


@once
def _of_kinds() -> dict[str, Any]:
    common = get_args(CommonEvent)
    return {event.__name__: event for event in close().events if event not in common}


def __getattr__(name: str) -> Any:
    # Here: a kind's module may import this one before the kinds are known.
    if name == "__all__":
        common = [event.__name__ for event in get_args(CommonEvent)]
        return [*common, "Delta", "Event", "JournalEvent", *_of_kinds()]
    if not name.startswith("_") and name in _of_kinds():
        return _of_kinds()[name]
    raise missing_name(__name__, name, __getattr__("__all__") if not name.startswith("_") else ())
