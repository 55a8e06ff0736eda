"""What a call of a step came to, by the arrival that settles it."""

from typing import Any, NamedTuple

from cadre.engine.calls.fold_calls import error_of, failure_of, timed_out
from cadre.engine.calls.results import delegate_finished
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.steps import CallState
from cadre.kinds.workflow.fold import word_of
from cadre.protocol.messages import Decision, ErrorInfo, Report, TimerFired, ToolResult


class StepOutcome(NamedTuple):
    """What a step gave: a value, or an error."""

    value: Any = None
    error: ErrorInfo | None = None
    label: str = ""
    """Which of its ways it leads."""
    target: str = ""
    """The step that this way leads to, as far as that is settled; "" is the end."""


def outcome_of(call: CallState, arrival: Arrival) -> StepOutcome:
    """Return the call's value or error. A member that used up its steps and found nothing has failed."""
    match arrival.what:
        case ToolResult(output=output, error=error):
            return StepOutcome(output) if error is None else StepOutcome(error=error)
        case Report() as report:
            failure = failure_of(delegate_finished(report))
            if report.state == "max_steps_error" and report.output is None:
                failure = ErrorInfo("max-steps", "It used up its steps and found nothing.")
            return (
                StepOutcome(report.output) if failure is None else StepOutcome(error=report.error or failure)
            )
        case Decision() as decision:
            return _decided(call, decision)
        case TimerFired() as timer:
            return _too_late(call, timer, arrival.at)
        case what:
            raise TypeError(f"a {type(what).__name__} settles no call")


def _decided(call: CallState, decision: Decision) -> StepOutcome:
    event = ev.ApprovalDecided(
        call=call.id,
        verdict=decision.verdict,
        feedback=decision.feedback,
        sender=decision.sender,
    )
    if call.kind != "question":
        return StepOutcome(error=error_of(event, call))
    return _word(event)


def _too_late(call: CallState, timer: TimerFired, at: float) -> StepOutcome:
    if call.hold is None:
        return StepOutcome(error=error_of(timed_out(call, timer, at), call))
    event = ev.ApprovalDecided(call=call.id, verdict="expired")
    return _word(event) if call.kind == "question" else StepOutcome(error=error_of(event, call))


def _word(event: ev.ApprovalDecided) -> StepOutcome:
    word = word_of(event)
    return StepOutcome(word, label=word["answer"])
