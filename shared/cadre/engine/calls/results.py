"""Handle the answer to an open call, or its timeout."""

from typing import Any

from cadre.engine.answers.answer_checks import check_event, is_check, problem_of, verdict
from cadre.engine.calls.fold_calls import no_answer, timed_out
from cadre.engine.draft import Draft
from cadre.journal import events as ev
from cadre.journal.run import Run
from cadre.protocol.messages import Report, TimerFired, ToolResult, Unfinished


def on_result(draft: Draft, result: ToolResult) -> None:
    """Decide what follows from the result of a tool."""
    if result.unfinished is not None:
        _paused(draft, result, result.unfinished)
        return
    draft.emit(_answered(result))
    if is_check(draft.run, result.call):
        _checked(draft, result.call, problem_of(result))
    else:
        settled(draft, result.call)


def late_outcome(run: Run, what: Any) -> ev.AnyEvent | None:
    """Return what comes of a call that the end of the run has cut short, which a later turn reads; None for anything
    else."""
    match what:
        case ToolResult(call=call, unfinished=None) | Report(child=call) if any(
            one.call == call for one in run.revoked
        ):
            return delegate_finished(what) if isinstance(what, Report) else _answered(what)
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
        note=result.note,
    )


def _paused(draft: Draft, result: ToolResult, unfinished: Unfinished) -> None:
    """The call waits: for the clock, or for a person."""
    until = None if unfinished.question else draft.at + unfinished.seconds
    draft.emit(
        ev.ToolPaused(call=result.call, tool=result.tool, unfinished=unfinished, until=until, executor=result.executor)
    )
    if not unfinished.question:
        return
    seconds = draft.spec.approval_seconds
    draft.emit(
        ev.ApprovalRequested(
            call=result.call,
            name=result.tool,
            kind="tool",
            arguments={},
            reason=unfinished.question,
            expires_at=draft.at + seconds if seconds is not None else None,
        )
    )


def on_report(draft: Draft, report: Report) -> None:
    """Decide what follows from the report of a team member."""
    draft.emit(delegate_finished(report))
    settled(draft, report.child)


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


def on_time_out(draft: Draft, call: str, timer: TimerFired) -> None:
    """Decide what follows when a call has taken too long, or its callee has been away for too long."""
    event = timed_out(next(one for one in draft.run.open_calls() if one.id == call), timer, draft.at)
    draft.emit(event)
    if is_check(draft.run, call):
        _checked(draft, call, no_answer(event))
    else:
        settled(draft, call)


def settled(draft: Draft, call: str) -> None:
    """Have the agent's kind decide what follows from a call that has its outcome now."""
    assert draft.run.current is not None
    draft.kind.settled(draft, [one for one in draft.run.current.calls if one.id == call])


def _checked(draft: Draft, call: str, problem: str) -> None:
    """One check of a proposed answer is over; the last of them decides."""
    run = draft.run
    draft.emit(check_event(run, call, problem))
    text = verdict(run)
    if text is None:
        return
    assert run.proposal is not None
    text = text or draft.unread_problem()
    if text:
        draft.turn_down(text, run.proposal.arguments)
    else:
        draft.give(run.proposal.answer)
