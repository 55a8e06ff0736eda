"""The events of a run as classes: `match event.body: case StepFinished(step=step): …` (docs/events.md).

Those of the kinds of agents are here too, by the names of their classes, also of kinds that others have installed.
"""

from typing import Any

from cadre.client.event import Event
from cadre.journal.events import (
    AnswerChecked,
    AnswerProposed,
    ApprovalDecided,
    ApprovalRequested,
    CallDropped,
    CallRefused,
    CallTimedOut,
    CancelRequested,
    ContextOverflowed,
    DelegateFinished,
    DelegateStarted,
    EditApplied,
    EditRefused,
    GraceStarted,
    HistorySummarized,
    MemoryAsked,
    MemoryRecalled,
    MessageReceived,
    ModelAnswered,
    ModelCalled,
    ModelDeferred,
    OfferChanged,
    RecordIgnored,
    RunAccepted,
    RunFinished,
    SignalReceived,
    StepFinished,
    StepStarted,
    ToolAnswered,
    ToolCalled,
    ToolPaused,
    WaitFinished,
    WaitStarted,
)
from cadre.journal.parts import JournalEvent
from cadre.protocol.deltas import Delta
from cadre.spec.kinds import declared_kinds

__all__ = [
    "AnswerChecked",
    "AnswerProposed",
    "ApprovalDecided",
    "ApprovalRequested",
    "CallDropped",
    "CallRefused",
    "CallTimedOut",
    "CancelRequested",
    "ContextOverflowed",
    "DelegateFinished",
    "DelegateStarted",
    "Delta",
    "EditApplied",
    "EditRefused",
    "Event",
    "GraceStarted",
    "HistorySummarized",
    "JournalEvent",
    "MemoryAsked",
    "MemoryRecalled",
    "MessageReceived",
    "ModelAnswered",
    "ModelCalled",
    "ModelDeferred",
    "OfferChanged",
    "RecordIgnored",
    "RunAccepted",
    "RunFinished",
    "SignalReceived",
    "StepFinished",
    "StepStarted",
    "ToolAnswered",
    "ToolCalled",
    "ToolPaused",
    "WaitFinished",
    "WaitStarted",
]

_OF_KINDS = {event.__name__: event for kind in declared_kinds().values() for event in kind.events}
__all__ += list(_OF_KINDS)


def __getattr__(name: str) -> Any:
    if name in _OF_KINDS:
        return _OF_KINDS[name]
    raise AttributeError(f"module 'cadre.events' has no attribute {name!r}")
