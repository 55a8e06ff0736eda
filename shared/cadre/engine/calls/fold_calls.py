"""Fold events into a step's calls: held, waiting for their turn, sent, answered, given up."""

from cadre.engine.calls.repeats import note_outcome
from cadre.engine.context.context_budget import per_step, weight_of_closed
from cadre.engine.context.text_size import clip, fit, observation_of
from cadre.engine.timers import away_of
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, ApprovalHold, CallKind, CallPause, CallState, Correction, Revoked, Run
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import ErrorInfo, PersonsAnswer, Resumption, TimerFired
from cadre.spec.member_call import arguments_of

_TIMED_OUT: dict[str, ErrorCode] = {"": "timed-out", "away": "away", "left": "interrupted"}
"""Codes of the errors, by the code of `call.timed_out`."""

_REMEMBERED = 64
"""The number of revoked calls that are kept, the last ones, in case a worker died before it sent the message."""

Opening = ev.ApprovalRequested | ev.ToolCalled | ev.DelegateStarted | ev.CallRefused
"""The events that begin an open call, or one that is refused."""


def open_call(run: Run, event: Opening, n: int, at: float) -> None:
    """A new call of the current step; or one that was held, and is made now."""
    if run.current is None:
        return
    known = run.call(event.call)
    if known is not None and known.pause is not None:
        _go_on(run, known, known.pause, event, n, at)
        return
    match event:
        case ev.ToolCalled():
            call = CallState(id=event.call, name=event.tool, kind="tool", arguments=event.arguments)
            call.check = run.proposal is not None and event.call in run.proposal.checks
        case ev.DelegateStarted():
            card = run.members.get(event.member)
            form = card.input_schema if card is not None else None
            given = arguments_of(form, event.task, event.inputs)
            call = CallState(id=event.call, name=event.member, kind="member", arguments=given, budget=event.budget)
            call.passes = event.passes
        case ev.ApprovalRequested():
            kind: CallKind = "tool" if event.kind == "function" else event.kind
            call = CallState(id=event.call, name=event.name, kind=kind, arguments=event.arguments)
            call.hold = _hold_of(event, n, at)
        case ev.CallRefused():
            call = CallState(id=event.call, name=event.name, kind="refused", arguments=event.arguments)
            call.opened, call.opened_at = n, at
            call.error = _clipped(run, event.error)
            run.tokens += weight_of_closed(run, call)
            run.refused_repeats += event.error.code == "loop"
    calls = run.current.calls
    if known is None:
        calls.append(call)
    else:
        call.correction = known.correction
        calls[calls.index(known)] = call
    if call.is_open and call.hold is None:
        _send_next(run, n, at)


def _hold_of(event: ev.ApprovalRequested, n: int, at: float) -> ApprovalHold:
    return ApprovalHold(reason=event.reason, since=n, at=at, expires_at=event.expires_at, rule=event.rule, by=event.by)


def pause_call(run: Run, event: ev.ToolPaused, n: int, at: float) -> None:
    """The call is unfinished; its place is free for another one."""
    state = run.call(event.call)
    if state is None or not state.is_open:
        return
    state.pause = CallPause(unfinished=event.unfinished, since=n, until=event.until)
    state.opened, state.due = 0, None
    _send_next(run, n, at)


def _go_on(run: Run, call: CallState, pause: CallPause, event: Opening, n: int, at: float) -> None:
    """A call that is unfinished waits for a person, or goes on."""
    if isinstance(event, ev.ApprovalRequested):
        call.hold = _hold_of(event, n, at)
        return
    number = call.resumes.round + 1 if call.resumes is not None else 1
    from_there = pause.unfinished
    call.resumes = Resumption(
        round=number, state=from_there.state, answer=pause.answer, may_repeat=from_there.may_repeat
    )
    call.pause, call.hold = None, None
    _send_next(run, n, at)


def decide_call(run: Run, event: ev.ApprovalDecided, n: int, at: float) -> None:
    """Make a person's decision true of the held call."""
    call = run.call(event.call)
    if call is None:
        return
    error = error_of(event, call)
    if error is not None:
        close_call(run, call.id, n, at, None, error)
    elif call.pause is not None:
        answer = PersonsAnswer("decline")
        if event.verdict != "rejected":
            answer = PersonsAnswer("accept", event.arguments or {})
        call.pause.answer = answer
    elif call.kind == "question":
        close_call(run, call.id, n, at, observation_of(event.arguments) if event.arguments else event.feedback, None)
    elif event.verdict == "corrected":
        call.correction = Correction(name=call.name, arguments=call.arguments, feedback=event.feedback)
    # approved: the event of the call itself follows


def error_of(event: ev.ApprovalDecided | ev.CallTimedOut, call: CallState) -> ErrorInfo | None:
    """Return the error that the caller reads in place of the call's result; None if a result is still to come."""
    if isinstance(event, ev.CallTimedOut):
        effect = "It was not made." if event.code == "away" else "Whether it has had any effect is unknown."
        text = f"Error executing tool {call.name!r}: {no_answer(event)}. {effect}"
        return ErrorInfo(_TIMED_OUT[event.code], text)
    match event.verdict:
        case "rejected" if call.pause is not None:
            return None
        case "expired" if call.pause is not None:
            return ErrorInfo("expired", f"{call.name!r} asked a person, and nobody answered in time.")
        case "rejected" if call.kind == "question":
            said = f" They said: {event.feedback}" if event.feedback else ""
            return ErrorInfo("rejected", f"A person was asked and said no.{said}")
        case "expired" if call.kind == "question":
            return ErrorInfo("expired", "A person was asked, and nobody answered in time.")
        case "rejected":
            text = f"A person was asked and did not allow this call of {call.name!r}."
            said = f" They said: {event.feedback}" if event.feedback else ""
            return ErrorInfo("rejected", text + said)
        case "expired":
            text = f"Nobody decided in time whether {call.name!r} may be called, so it was not."
            return ErrorInfo("expired", text)
        case _:
            return None


def timed_out(call: CallState, timer: TimerFired, at: float) -> ev.CallTimedOut:
    """Return the event of an open call whose timer has gone off."""
    absence = away_of(timer.name)
    if absence is not None:
        return ev.CallTimedOut(call=call.id, seconds=round(at - call.opened_at, 3), code=absence[1])
    return ev.CallTimedOut(call=call.id, seconds=round((call.due or at) - call.opened_at, 3))


def no_answer(event: ev.CallTimedOut) -> str:
    """Return why there is no answer, as a text for the caller."""
    if not event.code:
        return f"no answer within {event.seconds:g} s"
    begun = ", and may have begun the call" if event.code == "left" else ""
    return f"what serves it is away{begun}; the call has waited {event.seconds:g} s"


def close_call(run: Run, call: str, n: int, at: float, text: str | None, error: ErrorInfo | None) -> None:
    """The call has its observation; the next one that waits gets its turn."""
    state = run.call(call)
    if state is None or not state.is_open:
        return
    state.hold, state.pause = None, None
    if error is not None:
        state.error = _clipped(run, error.saying(_with_correction(state, error.message)))
    if text is not None:
        state.observation = _short(run, _with_correction(state, text))
    run.tokens += weight_of_closed(run, state)
    if not state.check and state.kind != "question":
        note_outcome(run, state)
    _send_next(run, n, at)


def time_out_call(run: Run, event: ev.CallTimedOut, n: int, at: float) -> None:
    """Give up a call that took too long, and have its worker informed."""
    state = run.call(event.call)
    if state is None or not state.is_open:
        return
    revoke(run, state, n, at, no_answer(event))
    if state.kind == "member" and state.opened:
        run.late_members[state.id] = state.budget
    close_call(run, event.call, n, at, None, error_of(event, state))


def drop_call(run: Run, event: ev.CallDropped, n: int, at: float) -> None:
    """Give up a call that is no longer needed, and have its worker informed."""
    state = run.call(event.call)
    if state is None or not state.is_open:
        return
    revoke(run, state, n, at, event.reason)
    if state.kind == "member" and state.opened:
        run.late_members[state.id] = state.budget
    cut_short(state, event.reason)
    run.tokens += weight_of_closed(run, state)


def cut_short(call: CallState, reason: str) -> None:
    """Close a call that the run gives up, with what is known of its effect: none, or unknown."""
    if call.opened or call.pause is not None:
        text = f"Outcome unknown: {reason} before {call.name!r} had answered. It may or may not have taken effect."
        call.error = ErrorInfo("interrupted", text)
    else:
        call.error = ErrorInfo("cancelled", f"Not made: {reason} before.")
    call.hold, call.pause = None, None


def note_late(run: Run, call: str, text: str | None, error: ErrorInfo | None) -> None:
    """A call that the end of the run has cut short has its outcome after all: the next turn of its session reads it."""
    run.revoked = [one for one in run.revoked if one.call != call]
    # What a call came to before the end was read, and may have been remembered: that stays.
    cut = (step for step in reversed(run.steps) if isinstance(step, ActionStep) and step.interrupted)
    calls = (one for step in cut for one in step.calls)
    state = next((one for one in calls if one.id == call), None)
    if state is not None:
        state.error = _clipped(run, error) if error is not None else None
        state.observation = _short(run, text) if text is not None else None


def revoke(run: Run, call: CallState, n: int, at: float, reason: str) -> None:
    """Have the worker of the call informed that its result is no longer awaited."""
    if not call.opened and call.pause is None:
        return
    if run.revoked and run.revoked[-1].since != n:
        run.revoked = run.revoked[-_REMEMBERED:]
    number = call.resumes.round if call.resumes is not None else 0
    resumes = None
    if call.pause is not None:
        resumes = Resumption(round=number + 1, state=call.pause.unfinished.state, may_repeat=True)
    run.revoked.append(
        Revoked(
            call=call.id,
            round=number,
            name=call.name,
            kind=call.kind,
            since=n,
            at=at,
            reason=reason,
            resumes=resumes,
        )
    )


def failure_of(event: ev.DelegateFinished) -> ErrorInfo | None:
    """A member that ran out of steps still answered; one that failed or was cancelled did not."""
    if event.state in ("success", "max_steps_error"):
        return None
    why = event.error.message if event.error else event.state
    output = observation_of(event.output) if event.output is not None else ""
    found = f"\n{output}" if output and output != why else ""
    text = (
        f"Error executing request to team member {event.member!r}: {why}{found}\n"
        "Please try again, or ask another team member."
    )
    return ErrorInfo("member-failed", text)


def _send_next(run: Run, n: int, at: float) -> None:
    """Send as many of the calls that wait for their turn as may be under way at once; of serial tools only the first
    that is open, be it held or unfinished."""
    assert run.current is not None
    limit = run.spec.limits.parallel if run.spec else 1
    calls, has_serial = run.open_calls(), False
    under_way = len([call for call in calls if call.opened and call.hold is None and call.pause is None])
    for call in calls:
        if under_way >= limit:
            return
        is_next = not (call.opened or call.hold or call.pause)
        if call.kind == "tool" and call.name in run.tools and run.tools[call.name].serial:
            is_next, has_serial = is_next and not has_serial, True
        if is_next:
            call.opened, call.opened_at = n, at
            seconds = run.spec.timeouts.get(call.name, run.spec.timeouts.get("*")) if run.spec else None
            call.due = at + seconds if seconds is not None else None
            under_way += 1


def _with_correction(call: CallState, text: str) -> str:
    """A model that reads the result of a call it did not make must know why."""
    if call.correction is None:
        return text
    what = observation_of({"name": call.name, "arguments": call.arguments})
    said = f" They said: {call.correction.feedback}" if call.correction.feedback else ""
    return f"A person changed this call to {what}.{said}\n{text}"


def _short(run: Run, text: str) -> str:
    """Return what goes beyond the agent's limit is cut, and beyond the call's share of what one step may take up."""
    if run.spec is None:
        return text
    calls = len(run.current.calls) if run.current is not None else 1
    return fit(clip(text, run.spec.limits.observation_chars), per_step(run) // max(1, calls))


def _clipped(run: Run, error: ErrorInfo) -> ErrorInfo:
    """Return what went wrong is an observation too, and as long as a tool likes."""
    return error.saying(_short(run, error.message))
