"""What follows when an open call has its answer, or has waited too long for it."""

from __future__ import annotations

from cadre.engine.answer_checks import is_check, on_check, problem_of
from cadre.engine.steps import after_call
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.protocol.messages import Report, ToolResult


def on_result(run: Run, result: ToolResult, arrival: Arrival) -> list[ev.AnyEvent]:
    answered = ev.ToolAnswered(
        call=result.call,
        tool=result.tool,
        output=result.output,
        error=result.error,
        blob=result.blob,
        files=result.files,
        blob_form=result.blob_form,
        executor=result.executor,
        seconds=max(0.0, result.at - result.started_at) if result.started_at else 0.0,
        started_at=result.started_at or None,
    )
    if is_check(run, result.call):
        return [answered, *on_check(run, result.call, problem_of(result), arrival)]
    return [answered, *after_call(run, arrival)]


def on_report(run: Run, report: Report, arrival: Arrival) -> list[ev.AnyEvent]:
    return [told(report), *after_call(run, arrival)]


def told(report: Report) -> ev.DelegateFinished:
    return ev.DelegateFinished(
        call=report.child,
        member=report.agent,
        state=report.state,
        output=report.output,
        text=report.text,
        error=report.error,
        usage=report.usage,
        steps=report.steps,
    )


def on_time_out(run: Run, call: str, arrival: Arrival) -> list[ev.AnyEvent]:
    state = next(one for one in run.open_calls() if one.id == call)
    seconds = (state.due or arrival.at) - state.opened_at
    timed_out = ev.CallTimedOut(call=call, seconds=round(seconds, 3))
    if is_check(run, call):
        return [timed_out, *on_check(run, call, f"no answer within {timed_out.seconds:g} s", arrival)]
    return [timed_out, *after_call(run, arrival)]
