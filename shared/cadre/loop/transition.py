"""What becomes true when something arrives at a run: the whole of an agent's decisions, pure.

`transition` decides by phase and arrival; what it returns is appended to the journal as one entry.
An arrival that no case takes is late, unknown or a duplicate: it is accounted for and changes nothing.
"""

import msgspec

from cadre.engine.budget import gained, out_of_time
from cadre.engine.calls.approval import held_call
from cadre.engine.calls.call_events import made
from cadre.engine.calls.decisions import on_decision, on_expiry
from cadre.engine.calls.results import delegate_finished, on_late_outcome, on_report, on_result, on_time_out
from cadre.engine.carry_out import carry_out
from cadre.engine.context.compaction import on_summary
from cadre.engine.context.observation import clip
from cadre.engine.kind import kind_of
from cadre.engine.model_failure import on_model_failure
from cadre.engine.parts import as_tasked
from cadre.engine.recall import on_memories, on_no_memories
from cadre.engine.steps import accepted, begin_model_call, finished
from cadre.engine.timers import away_of, call_of, deadline_timer, kind_wait_of, resume_timer
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned
from cadre.journal.run import SUMMARY, Phase, Run
from cadre.journal.steps import CallState
from cadre.loop.edits import (
    on_edit,
)
from cadre.loop.guards import beyond_bounds, told_in_full, within_bounds, within_context
from cadre.loop.signals import end_signalled_waits, on_signal
from cadre.loop.user_messages import on_message
from cadre.protocol.codes import IgnoredCode
from cadre.protocol.messages import (
    Cancel,
    Decision,
    Edit,
    ErrorInfo,
    Message,
    Report,
    Signal,
    Task,
    TimerFired,
    ToolResult,
    UserMessage,
)
from cadre.protocol.topology import call_id
from cadre.protocol.usage import TokenUsage, Usage
from cadre.spec.templates.template_work import one_decision

_QUESTION_CHARS = 2_000
"""Characters of a task that the memory service is asked with."""


def transition(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """The events that the arrival makes true of the run; at least one. All templates that it evaluates share one
    allowance of work."""
    with one_decision():
        return _bounded(run, arrival)


def _bounded(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    arrival = as_tasked(run, arrival)
    events = end_signalled_waits(run, _decide(run, arrival), arrival)
    events = within_context(run, events, arrival)
    bounded = within_bounds(run, events, arrival)
    if bounded is not events:
        events = end_signalled_waits(run, bounded, arrival)
    end = events[-1]
    if type(end) is ev.RunFinished:
        end = told_in_full(run, events, arrival.at)
        events[-1] = msgspec.structs.replace(end, usage=run.usage + gained(events))
    return events


def _decide(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    what = arrival.what
    if run.phase is Phase.DONE:
        return on_late_outcome(run, what) or [_ignored(arrival, "run-ended")]
    if isinstance(what, Signal):
        return on_signal(run, what)
    if isinstance(what, UserMessage):
        return on_message(run, what, arrival)
    if run.phase is Phase.NEW:
        return _before_the_task(run, arrival)
    match what:
        case Edit():
            return on_edit(run, what, arrival)
        case Cancel():
            return _on_cancel(run, what, arrival)
        case Poisoned():
            return [finished(run, "error", error=_poison(what))]
        case TimerFired(name=name) if name == deadline_timer(run) and run.deadline is not None:
            return beyond_bounds(run, out_of_time(), arrival)
    events = None
    match run.phase:
        case Phase.ACTING:
            events = _while_acting(run, arrival)
        case Phase.THINKING:
            events = _while_thinking(run, arrival)
        case Phase.WAITING:
            if isinstance(what, TimerFired) and run.deferral and run.deferral.timer == what.name:
                events = _again(run, arrival, run.deferral.attempt + 1)
    return events if events is not None else _of_kind(run, arrival)


def _on_cancel(run: Run, cancel: Cancel, arrival: Arrival) -> list[ev.AnyEvent]:
    """Return the end, or what the agent's kind does before it. A second request is noted, unless it wants the end at
    once."""
    requested = _requested(cancel)
    if run.cancelled is not None and not cancel.now:
        return [requested]
    error = ErrorInfo("cancelled", cancel.reason or "cancelled")
    moves = None if cancel.now else kind_of(run).cancelled(run, error, arrival)
    if moves is None:
        return [requested, finished(run, "cancelled", error=error)]
    return [requested, *carry_out(run, arrival, moves)]


def _requested(cancel: Cancel) -> ev.CancelRequested:
    return ev.CancelRequested(reason=cancel.reason, sender=cancel.sender, now=cancel.now)


def _before_the_task(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    match arrival.what:
        case Task() as task if run.cancelled is not None:
            error = ErrorInfo("cancelled", run.cancelled or "cancelled before it began")
            return [accepted(task, arrival), finished(run, "cancelled", error=error)]
        case Task() as task:
            return _begin(run, task, arrival)
        case Cancel() as cancel:
            # It overtook its task, which will find it here.
            return [_requested(cancel)]
        case Poisoned(task=Task() as task) as poisoned:
            return [accepted(task, arrival), finished(run, "error", error=_poison(poisoned))]
        case _:
            return [_ignored(arrival, "not-begun")]


def _while_thinking(run: Run, arrival: Arrival) -> list[ev.AnyEvent] | None:
    """What follows from the outcome of the model call in flight; None for anything else."""
    match arrival.what:
        case ModelReplied() as reply if _is_current(run, reply.attempt):
            return _on_reply(run, reply, arrival)
        case ModelFailed() as failure if _is_current(run, failure.attempt):
            return on_model_failure(run, failure, arrival)
        case ModelLost() as lost if _is_current(run, lost.attempt):
            return _again(run, arrival, lost.attempt + 1)
        case _:
            return None


def _while_acting(run: Run, arrival: Arrival) -> list[ev.AnyEvent] | None:
    """What follows from the outcome of an open call, or of asking for memories; None for anything else."""
    match arrival.what:
        case ToolResult() as result if run.recalling and run.recalling.call == result.call:
            return on_memories(run, result, arrival)
        case ToolResult() as result if _is_open(run, result.call):
            return on_result(run, result, arrival)
        case Report() as report if _is_open(run, report.child):
            return on_report(run, report, arrival)
        case Decision() as decision if held := held_call(run, decision.call):
            return on_decision(run, held, decision, arrival)
        case TimerFired() as timer:
            return _on_timer_of_call(run, timer, arrival)
        case _:
            return None


def _on_timer_of_call(run: Run, timer: TimerFired, arrival: Arrival) -> list[ev.AnyEvent] | None:
    call = call_of(timer.name, "call")
    if call and run.recalling and run.recalling.call == call:
        return on_no_memories(run, run.recalling, arrival)
    if call and _is_open(run, call):
        return on_time_out(run, call, timer, arrival)
    if (absence := away_of(timer.name)) is not None:
        return _on_absence(run, absence[0], timer, arrival)
    if (due := _due(run, timer)) is not None:
        return [made(run, due.id, due.name, due.arguments)]
    if (asked := call_of(timer.name, "approval")) and (held := held_call(run, asked)):
        return on_expiry(run, held, arrival)
    return None


def _on_absence(run: Run, message: str, timer: TimerFired, arrival: Arrival) -> list[ev.AnyEvent] | None:
    """Return what follows when the callee of a call has been away for too long; None when the call is closed."""
    call = next((one for one in run.open_calls() if one.message == message), None)
    if call is not None and call.opened and _is_open(run, call.id):
        return on_time_out(run, call.id, timer, arrival)
    moves = kind_of(run).absent(run, message, arrival)
    return carry_out(run, arrival, moves) if moves is not None else None


def _due(run: Run, timer: TimerFired) -> CallState | None:
    """The call whose pause is over."""
    paused = (one for one in run.open_calls() if one.pause is not None and one.pause.until is not None)
    return next((one for one in paused if resume_timer(one) == timer.name), None)


def _begin(run: Run, task: Task, arrival: Arrival) -> list[ev.AnyEvent]:
    """Accepts the task, and asks for memories or has the agent's kind begin."""
    begun = accepted(task, arrival)
    if arrival.problem:
        return [begun, finished(run, "error", error=ErrorInfo("not-found", arrival.problem))]
    # A fork has what the other run was given.
    if arrival.spec.memory.recall and task.forks is None:
        query = clip(task.task, _QUESTION_CHARS)
        count = arrival.spec.memory.recall
        return [begun, ev.MemoryAsked(call=call_id(run.id, 0, 0), query=query, count=count)]
    # The kind is asked about a run that has its task already.
    kind = {"decided_by": begun.decided_by, "kind_version": begun.kind_version}
    about = msgspec.structs.replace(run, agent=task.agent, spec=arrival.spec, task=task, **kind)
    return [begun, *carry_out(about, arrival, kind_of(about).begin(about, arrival))]


def _of_kind(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """What the common cases do not take: a wait or a record of the kind's own, or nothing that is awaited."""
    what = arrival.what
    if isinstance(what, Report) and what.child in run.late_members:
        return [delegate_finished(what)]
    if isinstance(what, TimerFired) and (name := kind_wait_of(run, what.name)) is not None:
        fired = msgspec.structs.replace(what, name=name)
        return [
            ev.WaitFinished(name=name),
            *carry_out(run, arrival, kind_of(run).arrived(run, fired, arrival) or []),
        ]
    if isinstance(what, Message) and not isinstance(what, TimerFired):
        moves = kind_of(run).arrived(run, what, arrival)
        if moves is not None:
            return carry_out(run, arrival, moves)
    return [_ignored(arrival, "not-awaited")]


def _on_reply(run: Run, reply: ModelReplied, arrival: Arrival) -> list[ev.AnyEvent]:
    model = run.model
    assert model is not None
    answered = ev.ModelAnswered(
        purpose=model.purpose,
        step=model.step,
        attempt=model.attempt,
        content=reply.content,
        calls=reply.calls,
        usage=TokenUsage.of(reply.usage),
        model=reply.model,
        finish_reason=reply.finish_reason,
        seconds=reply.seconds,
        unpriced=reply.unpriced,
        items=reply.items,
        cached_tokens=reply.cached_tokens,
        reasoning_tokens=reply.reasoning_tokens,
        context=reply.context,
        endpoint=reply.endpoint,
        learned=reply.learned,
    )
    if model.purpose == SUMMARY:
        return on_summary(run, reply, answered, arrival)
    moves = kind_of(run).replied(run, reply, arrival)
    return [answered, *carry_out(run, arrival, moves, spent=reply.usage)]


def _again(run: Run, arrival: Arrival, attempt: int) -> list[ev.AnyEvent]:
    """The same model call once more, now belonging to the record in hand."""
    about = run.model or run.deferral
    assert about is not None
    return begin_model_call(
        run, arrival, about.purpose, about.step, attempt=attempt, postponed=about.postponed
    )


def _is_current(run: Run, attempt: int) -> bool:
    return run.model is not None and run.model.attempt == attempt


def _is_open(run: Run, call: str) -> bool:
    """Whether an answer to the call is awaited: it was sent, and has none."""
    return any(state.id == call and state.hold is None and state.pause is None for state in run.open_calls())


def _poison(poisoned: Poisoned) -> ErrorInfo:
    text = f"record {poisoned.id} was delivered {poisoned.deliveries} times and never handled to the end"
    if poisoned.why:
        text += f": {poisoned.why}"
    return ErrorInfo("poisoned", text)


def _ignored(arrival: Arrival, code: IgnoredCode) -> ev.RecordIgnored:
    what = arrival.what
    if isinstance(what, ModelReplied):
        usage = what.usage + Usage(model_calls=1)
        return ev.RecordIgnored(
            kind="ModelReplied", code=code, usage=usage, model=what.model, unpriced=what.unpriced
        )
    return ev.RecordIgnored(kind=type(what).__name__, code=code)
