"""What follows from a model's answer: calls opened or refused one by one, or the end of the run.

Each call has its own fate: a refused one never takes its siblings along. The order is the model's,
and call ids are derived from it, whatever ids the model chose.
"""

from __future__ import annotations

from typing import Any

from cadre.loop import events as ev
from cadre.loop.arrivals import Arrival, ModelReplied
from cadre.loop.checking import FINAL_ANSWER, CallError, check_call
from cadre.loop.course import after_step, finished
from cadre.loop.reading import ReadingError, read_arguments, read_calls
from cadre.loop.run import Run
from cadre.loop.variables import with_values
from cadre.messages import ErrorInfo, Usage
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
        answer = _final_answer(run, calls[0], reply)
        if answer is not None:
            return [ev.StepFinished(step=step), answer]
    opened = [_open(run, call, call_id(run.id, step, index)) for index, call in enumerate(calls)]
    if all(isinstance(event, ev.CallRefused) for event in opened):
        return [*opened, *after_step(run, arrival, step)]
    return list(opened)


def conclude(run: Run, reply: ModelReplied) -> ev.RunFinished:
    """The answer that a run gives when its steps are used up."""
    error = ErrorInfo("AgentMaxStepsError", f"Reached the limit of {run.max_steps} steps.")
    usage = reply.usage + Usage(model_calls=1)
    return finished(run, "max_steps_error", output=reply.content, error=error, usage=usage)


def _final_answer(run: Run, call: ev.RequestedCall, reply: ModelReplied) -> ev.RunFinished | None:
    """The end of the run, or None when the call itself is wrong (it is refused like any other then)."""
    try:
        arguments = read_arguments(call)
        check_call(run, call.name, arguments)
    except (ReadingError, CallError):
        return None
    answer = with_values(run, arguments)["answer"]
    return finished(run, "success", output=answer, usage=reply.usage + Usage(model_calls=1))


def _open(
    run: Run, call: ev.RequestedCall, call_id: str
) -> ev.ToolCalled | ev.DelegateStarted | ev.CallRefused:
    arguments: dict[str, Any] = {}
    try:
        arguments = read_arguments(call)
        check_call(run, call.name, with_values(run, arguments))
    except (ReadingError, CallError) as error:
        return ev.CallRefused(call=call_id, name=call.name, arguments=arguments, error=error.info)
    if call.name in run.tools:
        return ev.ToolCalled(call=call_id, tool=call.name, arguments=arguments)
    if call.name in run.members:
        return ev.DelegateStarted(
            call=call_id,
            member=call.name,
            task=arguments["task"],
            additional_args=arguments.get("additional_args") or {},
        )
    return ev.CallRefused(
        call=call_id, name=call.name, arguments=arguments, error=ErrorInfo("AgentToolCallError", ALONE)
    )
