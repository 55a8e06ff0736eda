"""What a call of a step came to, by the event that closed it."""

from typing import Any, NamedTuple

from cadre.engine.calls.fold_calls import failure_of
from cadre.journal import events as ev
from cadre.journal.steps import CallState
from cadre.kinds.workflow.fold import word_of
from cadre.protocol.messages import ErrorInfo


class StepOutcome(NamedTuple):
    """What a step gave: a value, or an error."""

    value: Any = None
    error: ErrorInfo | None = None
    label: str = ""
    """Which of its ways it leads."""
    target: str = ""
    """The step that this way leads to, as far as that is settled; "" is the end."""


def outcome_of(call: CallState, closed: ev.AnyEvent) -> StepOutcome:
    """Return the call's value or error. A member that used up its steps and found nothing has failed."""
    match closed:
        case ev.ToolAnswered(output=output, error=None):
            return StepOutcome(output)
        case ev.ToolAnswered(error=error):
            return StepOutcome(error=error)
        case ev.DelegateFinished() as report:
            failure = failure_of(report)
            if report.state == "max_steps_error" and report.output is None:
                failure = ErrorInfo("max-steps", "It used up its steps and found nothing.")
            if failure is None:
                return StepOutcome(report.output)
            return StepOutcome(error=report.error or failure)
        case ev.ApprovalDecided() if call.kind == "question":
            word = word_of(closed)
            return StepOutcome(word, label=word["answer"])
        case ev.CallRefused(error=refusal):
            return StepOutcome(error=refusal)
        case _:
            return StepOutcome(error=call.error)
