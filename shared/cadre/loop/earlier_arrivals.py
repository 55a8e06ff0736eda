"""From a journal entry of schema version 1 or 2 back to what had arrived: those do not say it in a field of their own.

Where an entry does not tell everything apart (a model call that failed for good, or once too often), there is more
than one candidate; one of them is what arrived.
"""

import re
from typing import Any

import msgspec

from cadre.engine.answers.answer_form import LAST_WORD_FAILED
from cadre.engine.model_failure import wait_before
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Offer, Poisoned
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.protocol.memory import RECALL
from cadre.protocol.messages import (
    Cancel,
    CodeFinished,
    CodeYielded,
    Decision,
    Report,
    Task,
    TimerFired,
    ToolResult,
)
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import declared_kinds

What = Any
"""One of the arrivals' kinds."""

_OF_MODEL = re.compile(r":model:(plan|act|final|summary):(\d+):(\d+)")
_LOST = re.compile(r":lost:(plan|act|final|summary):(\d+):(\d+)")
_DELIVERED = re.compile(
    r"record (\S+) was delivered (\d+) times and never handled to the end(?:: (.*))?", re.DOTALL
)
_SAME_WAIT = 1e-6


def arrivals_of(run: Run, entry: Entry) -> list[Arrival]:
    """What may have arrived at the run, in the state before the entry; [] when the entry does not tell."""
    called = next((event for event in entry.events if isinstance(event, ev.ModelCalled)), None)
    accepted = next((event for event in entry.events if isinstance(event, ev.RunAccepted)), None)
    spec = accepted.spec if accepted else run.spec
    return [
        Arrival(
            what=what,
            at=entry.at,
            cause=called.cause if called else entry.cause,
            offer=_offer(run, entry),
            spec=spec or AgentSpec(name=entry.agent, description="Not told in this entry."),
            history=accepted.history if accepted else [],
            prefix=accepted.prefix if accepted else [],
            problem=_problem(entry),
            base=accepted.base if accepted else 0,
            kind_version=accepted.kind_version if accepted else 0,
            base_with_offer=_base(run, entry),
        )
        for what in _whats(run, entry, accepted)
    ]


def _problem(entry: Entry) -> str:
    match entry.events:
        case [ev.RunAccepted(), ev.RunFinished(error=error)] if (
            error is not None and error.type == "NotFound"
        ):
            return error.message
        case _:
            return ""


def _base(run: Run, entry: Entry) -> int:
    return next((e.base for e in entry.events if isinstance(e, ev.OfferChanged)), run.fixed_tokens)


def _offer(run: Run, entry: Entry) -> Offer:
    for event in entry.events:
        if isinstance(event, ev.OfferChanged):
            return Offer(
                {tool.name: tool for tool in event.tools},
                {member.name: member for member in event.members},
                event.missing,
            )
    return Offer(run.tools, run.members, run.missing)


def _whats(run: Run, entry: Entry, accepted: ev.RunAccepted | None) -> list[What]:
    first = entry.events[0] if entry.events else None
    rest = entry.cause.removeprefix(run.id)
    if found := _OF_MODEL.fullmatch(rest):
        return _model_outcomes(run, entry, first, int(found[3]))
    if found := _LOST.search(entry.cause):
        return [ModelLost(attempt=int(found[3]))]
    if isinstance(first, ev.RecordIgnored):
        return _ignored(entry, first.kind)
    if (poisoned := _poisoned(entry, accepted)) is not None:
        return [poisoned]
    if accepted is not None:
        return [accepted.task]
    return _record(run, entry, first)


def _model_outcomes(run: Run, entry: Entry, first: ev.AnyEvent | None, attempt: int) -> list[What]:
    match first:
        case ev.ModelAnswered():
            names = {field.name for field in msgspec.structs.fields(ModelReplied)}
            told = {name: getattr(first, name) for name in names if hasattr(first, name)}
            return [ModelReplied(**told)]
        case ev.ModelDeferred():
            failed = ModelFailed(
                attempt=attempt, message=first.reason, status=first.status, rate_limited=first.rate_limited
            )
            wait = first.until - entry.at
            if abs(wait_before(failed, tries=attempt) - wait) > _SAME_WAIT:
                failed = msgspec.structs.replace(failed, retry_after=wait)
            return [failed]
        case ev.ContextOverflowed():
            return [ModelFailed(attempt=attempt, message=first.reason, final=True, too_long=True)]
        case ev.HistorySummarized():
            # The model did not write it: it was refused, or failed once too often.
            return [ModelFailed(attempt=attempt, message="", final=True)]
        case ev.RunFinished(error=error) if error is not None:
            text = error.message
            if isinstance(first.output, str) and first.output.startswith(LAST_WORD_FAILED):
                text = first.output.removeprefix(LAST_WORD_FAILED)
            # The last of several tries, a wait that would have been too long, or a refusal.
            return [
                ModelFailed(attempt=attempt, message=text),
                ModelFailed(attempt=attempt, message=text, rate_limited=True, retry_after=float("inf")),
                ModelFailed(attempt=attempt, message=text, final=True),
            ]
        case _:
            return []


def _poisoned(entry: Entry, accepted: ev.RunAccepted | None) -> Poisoned | None:
    end = entry.events[-1]
    if not isinstance(end, ev.RunFinished) or end.error is None or end.error.type != "Poisoned":
        return None
    found = _DELIVERED.fullmatch(end.error.message)
    if found is None:
        return None
    task = accepted.task if accepted else None
    return Poisoned(id=found[1], deliveries=int(found[2]), why=found[3] or "", task=task)


def _record(run: Run, entry: Entry, first: ev.AnyEvent | None) -> list[What]:
    """The inbox record whose copy the first event is."""
    about = {"id": entry.cause, "tree": entry.tree, "run": entry.run, "at": entry.at}
    match first:
        case ev.ToolAnswered():
            begun = _begun(first)
            about["at"] = begun + first.seconds
            return [_copy(ToolResult, first, about, started_at=begun)]
        case ev.MemoryRecalled() if not entry.cause.startswith(f"{run.id}:"):
            output = {"hits": first.memories, "degraded": bool(first.degraded), "why": first.degraded}
            begun = _begun(first)
            about["at"] = begun + first.seconds
            answer = msgspec.to_builtins(output) if first.error is None else None
            return [_copy(ToolResult, first, about, tool=RECALL, output=answer, started_at=begun)]
        case ev.DelegateFinished():
            return [_copy(Report, first, about, child=first.call, agent=first.member)]
        case ev.CancelRequested():
            return [_copy(Cancel, first, about)]
        case ev.ApprovalDecided() if first.verdict != "expired":
            return [_copy(Decision, first, about, tool=first.name)]
        case (
            ev.ApprovalDecided()
            | ev.CallTimedOut()
            | ev.MemoryRecalled()
            | ev.OfferChanged()
            | ev.ModelCalled()
            | ev.RunFinished()
        ):
            return _timer(run, about)
        case _:
            kinds = _records_copied_by(type(first))
            return [_copy(kind, first, about) for kind in kinds] if first is not None else []


def _records_copied_by(event: type) -> list[type]:
    """The record of some kind's own that an event of this type copies."""
    own = (pair for kind in declared_kinds().values() for pair in kind.messages.items())
    return [record for record, copy in own if copy is event]


def _begun(event: ev.ToolAnswered | ev.MemoryRecalled) -> float:
    """When the executor began; any time where only the length is known."""
    return event.started_at or (1.0 if event.seconds else 0.0)


def _copy(kind: Any, event: ev.AnyEvent, about: dict[str, Any], **renamed: Any) -> Any:
    """A record with the fields of an event that have the same names."""
    names = {field.name for field in msgspec.structs.fields(kind)} - {*about, "v"}
    same = {name: getattr(event, name) for name in names if hasattr(event, name)}
    return kind(**{**same, **about, **renamed})


def _timer(run: Run, about: dict[str, Any]) -> list[What]:
    name = about["id"].removeprefix(f"{run.id}:")
    return [TimerFired(name=name, **about)] if name != about["id"] else []


def _ignored(entry: Entry, kind: str) -> list[What]:
    """A record without consequence: no more is known of it than its kind and id."""
    about: dict[str, Any] = {"id": entry.cause, "tree": entry.tree, "run": entry.run, "at": entry.at}
    subject = entry.cause.rpartition(":")[0]
    match kind:
        case "Task":
            return [Task(agent=entry.agent, task="", **about)]
        case "ToolResult":
            return [ToolResult(call=subject, tool="", **about)]
        case "Report":
            return [Report(child=subject, agent="", state="error", **about)]
        case "Cancel":
            return [Cancel(**about)]
        case "Decision":
            return [Decision(call="", verdict="approved", **about)]
        case "CodeYielded":
            return [CodeYielded(block="", exchange=0, calls=[], **about)]
        case "CodeFinished":
            return [CodeFinished(block="", exchange=0, **about)]
        case "TimerFired":
            return [TimerFired(name=entry.cause.removeprefix(f"{entry.run}:"), **about)]
        case "Poisoned":
            return [Poisoned(id=entry.cause, deliveries=0)]
        case _:
            return []
