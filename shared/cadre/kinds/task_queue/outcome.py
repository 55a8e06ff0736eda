"""What came of the call that was to do a task, as far as the very arrival that settles it tells."""

from typing import NamedTuple

from cadre.engine.calls.fold_calls import failure_of
from cadre.engine.calls.results import delegate_finished
from cadre.engine.context.observation import clip, observation_of
from cadre.journal.arrivals import Arrival
from cadre.journal.events import CallRefused
from cadre.journal.parts import JournalEvent
from cadre.kinds.task_queue.queue import MAX_RESULT_CHARS
from cadre.protocol.messages import Decision, Report, ToolResult


class Outcome(NamedTuple):
    """What came of a try to do a task."""

    text: str
    failed: bool


def outcome_of(arrival: Arrival) -> Outcome:
    """What the arrival that settles a call says of it."""
    match arrival.what:
        case ToolResult(error=error) as result if error is not None:
            return Outcome(_cut(error.message or observation_of(result.output)), True)
        case ToolResult(output=output):
            return Outcome(_cut(observation_of(output)), False)
        case Report() as report:
            failure = failure_of(delegate_finished(report))
            return Outcome(_cut(failure.message if failure is not None else report.text), failure is not None)
        case Decision(feedback=feedback):
            return Outcome(_cut(f"A person did not allow it. {feedback}".strip()), True)
        case _:
            return Outcome("There was no answer in time.", True)


def refusal_in(calls: list[JournalEvent]) -> Outcome:
    """What is wrong with a call that could not be made."""
    texts = [call.error.message for call in calls if isinstance(call, CallRefused)]
    return Outcome(_cut("\n".join(texts)), True)


def _cut(text: str) -> str:
    return clip(text, MAX_RESULT_CHARS)
