"""What follows when an open call has its answer, or has waited too long for it."""

from typing import Any

from cadre.engine.answers.answer_checks import check_event, given, is_check, problem_of, verdict
from cadre.engine.calls.fold_calls import no_answer, timed_out
from cadre.engine.carry_out import answer_turned_down, carry_out, unread_problem
from cadre.engine.kind import kind_of
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.protocol.messages import Report, TimerFired, ToolResult
from cadre.protocol.rounds import Unfinished


def on_result(run: Run, result: ToolResult, arrival: Arrival) -> list[ev.AnyEvent]:
    """What follows from the result of a tool."""
    if result.unfinished is not None:
        return _paused(run, result, result.unfinished, arrival)
    answered = _answered(result)
    if is_check(run, result.call):
        return [answered, *_checked(run, result.call, problem_of(result), arrival)]
    return [answered, *settled(run, result.call, arrival)]


def on_late_outcome(run: Run, what: Any) -> list[ev.AnyEvent] | None:
    """Return what comes of a call that the end of the run has cut short, which a later turn reads; None for anything
    else."""
    match what:
        case ToolResult(call=call, unfinished=None) | Report(child=call) if any(
            one.call == call for one in run.revoked
        ):
            return [delegate_finished(what) if isinstance(what, Report) else _answered(what)]
        case _:
            return None


def _answered(result: ToolResult) -> ev.ToolAnswered:
    return ev.ToolAnswered(
        call=result.call,
        tool=result.tool,
        output=result.output,
        error=result.error,
        blob=result.blob,
        files=result.files,
        blob_form=result.blob_form,
        executor=result.executor,
        seconds=result.seconds,
        started_at=result.started_at or None,
    )


def _paused(run: Run, result: ToolResult, unfinished: Unfinished, arrival: Arrival) -> list[ev.AnyEvent]:
    """The call waits: for the clock, or for a person."""
    until = None if unfinished.question else arrival.at + unfinished.seconds
    paused = ev.ToolPaused(
        call=result.call, tool=result.tool, unfinished=unfinished, until=until, executor=result.executor
    )
    if not unfinished.question:
        return [paused]
    seconds = run.spec.approval_seconds if run.spec is not None else None
    question = ev.ApprovalRequested(
        call=result.call,
        name=result.tool,
        kind="tool",
        arguments={},
        reason=unfinished.question,
        expires_at=arrival.at + seconds if seconds is not None else None,
    )
    return [paused, question]


def on_report(run: Run, report: Report, arrival: Arrival) -> list[ev.AnyEvent]:
    """What follows from the report of a team member."""
    return [delegate_finished(report), *settled(run, report.child, arrival)]


def delegate_finished(report: Report) -> ev.DelegateFinished:
    """A report of a member as its manager's journal keeps it."""
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


def on_time_out(run: Run, call: str, timer: TimerFired, arrival: Arrival) -> list[ev.AnyEvent]:
    """Return what follows when a call has taken too long, or its callee has been away for too long."""
    event = timed_out(next(one for one in run.open_calls() if one.id == call), timer, arrival.at)
    if is_check(run, call):
        return [event, *_checked(run, call, no_answer(event), arrival)]
    return [event, *settled(run, call, arrival)]


def settled(run: Run, call: str, arrival: Arrival) -> list[ev.AnyEvent]:
    """What the agent's kind makes of a call that has its outcome by this very arrival."""
    state = next(one for one in run.open_calls() if one.id == call)
    return carry_out(run, arrival, kind_of(run).settled(run, state, arrival))


def _checked(run: Run, call: str, problem: str, arrival: Arrival) -> list[ev.AnyEvent]:
    """One check of a proposed answer is over; the last of them decides."""
    checked = check_event(run, call, problem)
    text = verdict(run, call, problem)
    if text is None:
        return [checked]
    assert run.proposal is not None
    text = text or unread_problem(run)
    if text:
        return [checked, *answer_turned_down(run, arrival, text)]
    return [checked, *given(run, run.proposal.answer)]
