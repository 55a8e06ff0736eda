"""What follows from a model's answer: calls opened or refused one by one, or the end of the run.

Each call has its own fate: a refused one never takes its siblings along. The order is the model's,
and call ids are derived from it, whatever ids the model chose.
"""

from __future__ import annotations

from typing import Any

from cadre.engine.answer_checks import propose
from cadre.engine.answer_form import answer_of, last_answer_of
from cadre.engine.calls.call_check import FINAL_ANSWER, CallError, check_call
from cadre.engine.calls.open_calls import open_calls
from cadre.engine.partial_result import findings_of
from cadre.engine.steps import after_step, finished
from cadre.engine.truncation import cut_off
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.run import Run
from cadre.kinds.code.decide import begin_code
from cadre.kinds.tool_calling.arguments import with_values
from cadre.kinds.tool_calling.parse import ReadingError, read_arguments, read_calls
from cadre.protocol.messages import ErrorInfo


def act_on_answer(run: Run, reply: ModelReplied, arrival: Arrival, step: int) -> list[ev.AnyEvent]:
    """Opens the calls of an answer to step `step`, or has its code run; ends the run if it is the final answer."""
    if run.spec is not None and (cut := cut_off(run.spec, reply)) is not None:
        return after_step(run, arrival, step, error=cut)
    if run.spec is not None and run.spec.kind == "code":
        return begin_code(run, reply, arrival, step)
    try:
        calls = read_calls(reply.content, reply.calls)
    except ReadingError as error:
        return after_step(run, arrival, step, error=error.info)
    if len(calls) == 1 and calls[0].name == FINAL_ANSWER:
        arguments = _final_answer(run, calls[0])
        if arguments is not None:
            answer = answer_of(run, with_values(run, arguments)["answer"])
            # The call of `final_answer` itself is the step's first.
            return propose(run, answer, arrival, step, made=1, arguments=arguments)
    opened, stuck = open_calls(run, arrival, calls, step, reply.usage)
    if stuck is not None:
        return [finished(run, "error", output=findings_of(run), error=stuck)]
    if all(isinstance(event, ev.CallRefused) for event in opened):
        return [*opened, *after_step(run, arrival, step)]
    return opened


def conclude(run: Run, reply: ModelReplied) -> ev.RunFinished:
    """The answer that a run gives when its steps are used up."""
    error = ErrorInfo("AgentMaxStepsError", f"Reached the limit of {run.max_steps} steps.")
    return finished(run, "max_steps_error", output=last_answer_of(run, reply.content), error=error)


def _final_answer(run: Run, call: ev.RequestedCall) -> dict[str, Any] | None:
    """The call's arguments, or None when the call itself is wrong (it is refused like any other then)."""
    try:
        arguments = read_arguments(call)
        check_call(run, call.name, arguments)
    except (ReadingError, CallError):
        return None
    return arguments
