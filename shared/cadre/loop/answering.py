"""What follows from a model's answer: calls opened or refused one by one, or the end of the run.

Each call has its own fate: a refused one never takes its siblings along. The order is the model's,
and call ids are derived from it, whatever ids the model chose.
"""

from __future__ import annotations

from typing import Any

from cadre.loop import events as ev
from cadre.loop.approval import hold
from cadre.loop.arrivals import Arrival, ModelReplied
from cadre.loop.checking import FINAL_ANSWER, CallError, check_call
from cadre.loop.course import after_step, finished
from cadre.loop.findings import findings_of
from cadre.loop.making import made, shared_out
from cadre.loop.reading import ReadingError, read_arguments, read_calls
from cadre.loop.repeats import LOOP, is_stuck, refusal_of
from cadre.loop.run import Run
from cadre.loop.variables import with_values
from cadre.messages import ErrorInfo
from cadre.subjects import call_id

ALONE = (
    "`final_answer` must be the only call of a step: the other calls of this step are being made."
    " Read their results first, then answer."
)


def act_on_answer(run: Run, reply: ModelReplied, arrival: Arrival, step: int) -> list[ev.AnyEvent]:
    """Opens the calls of an answer to step `step`; ends the run if it is the final answer."""
    try:
        calls = read_calls(reply.content, reply.calls)
    except ReadingError as error:
        return after_step(run, arrival, step, error=error.info)
    if len(calls) == 1 and calls[0].name == FINAL_ANSWER:
        answer = _final_answer(run, calls[0])
        if answer is not None:
            return [ev.StepFinished(step=step), answer]
    opened = [_open(run, arrival, call, call_id(run.id, step, index)) for index, call in enumerate(calls)]
    opened = shared_out(run, opened, reply.usage)
    repeated = sum(isinstance(event, ev.CallRefused) and event.error.type == LOOP for event in opened)
    stuck = is_stuck(run, repeated)
    if stuck is not None:
        return [finished(run, "error", output=findings_of(run), error=stuck)]
    if all(isinstance(event, ev.CallRefused) for event in opened):
        return [*opened, *after_step(run, arrival, step)]
    return opened


def conclude(run: Run, reply: ModelReplied) -> ev.RunFinished:
    """The answer that a run gives when its steps are used up."""
    error = ErrorInfo("AgentMaxStepsError", f"Reached the limit of {run.max_steps} steps.")
    return finished(run, "max_steps_error", output=reply.content, error=error)


def _final_answer(run: Run, call: ev.RequestedCall) -> ev.RunFinished | None:
    """The end of the run, or None when the call itself is wrong (it is refused like any other then)."""
    try:
        arguments = read_arguments(call)
        check_call(run, call.name, arguments)
    except (ReadingError, CallError):
        return None
    answer = with_values(run, arguments)["answer"]
    return finished(run, "success", output=answer)


def _open(run: Run, arrival: Arrival, call: ev.RequestedCall, call_id: str) -> ev.AnyEvent:
    """The call made, held back for a person, or refused."""
    arguments: dict[str, Any] = {}
    try:
        arguments = read_arguments(call)
        check_call(run, call.name, with_values(run, arguments))
    except (ReadingError, CallError) as error:
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=error.info)
    if call.name not in run.tools and call.name not in run.members:
        alone = ErrorInfo("AgentToolCallError", ALONE)
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=alone)
    repeated = refusal_of(run, call.name, arguments)
    if repeated is not None:
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=repeated)
    held = hold(run, arrival, call_id, call.name, arguments)
    return held if held is not None else made(run, call_id, call.name, arguments)
