"""What becomes true when something arrives at a run: the whole of an agent's decisions, pure.

`transition` is one match over (phase, arrival); what it returns is appended to the journal as one entry.
An arrival that no case takes is late, unknown or a duplicate: it is accounted for and changes nothing.
"""

from __future__ import annotations

import msgspec

from cadre.engine.budget import gained, out_of_time, within_bounds
from cadre.engine.calls.approval import held_call
from cadre.engine.calls.decisions import on_decision, on_expiry
from cadre.engine.calls.results import on_report, on_result, on_time_out, told
from cadre.engine.context.compaction import on_summary, within_context
from cadre.engine.model_failure import on_model_failure
from cadre.engine.partial_result import findings_of
from cadre.engine.recall import on_memories, on_no_memories
from cadre.engine.steps import accepted, begin, begin_model_call, finished
from cadre.engine.timers import DEADLINE, call_of
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned
from cadre.journal.run import Phase, Run
from cadre.kinds.code.decide import is_awaited, on_calls, on_end
from cadre.kinds.tool_calling.decide import act_on_answer, conclude
from cadre.protocol.messages import (
    Cancel,
    CodeFinished,
    CodeYielded,
    Decision,
    ErrorInfo,
    Report,
    Task,
    TimerFired,
    ToolResult,
)


def transition(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """The events that the arrival makes true of the run; at least one."""
    events = within_context(run, _decide(run, arrival), arrival)
    events = within_bounds(run, events, arrival.at)
    end = events[-1]
    if isinstance(end, ev.RunFinished):
        events[-1] = msgspec.structs.replace(end, usage=run.usage + gained(events))
    return events


def _decide(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    match run.phase, arrival.what:
        case Phase.NEW, Task() as task if run.cancelled is not None:
            error = ErrorInfo("Cancelled", run.cancelled or "cancelled before it began")
            return [accepted(task, arrival), finished(run, "cancelled", error=error)]
        case Phase.NEW, Task() as task:
            return begin(run, task, arrival)
        case Phase.NEW, Cancel() as cancel:
            # It overtook its task, which will find it here.
            return [ev.CancelRequested(reason=cancel.reason, sender=cancel.sender)]
        case Phase.NEW, Poisoned(task=Task() as task) as poisoned:
            return [accepted(task, arrival), finished(run, "error", error=_poison(poisoned))]
        case Phase.NEW, _:
            return [_ignored(arrival, "the run has not begun")]
        case Phase.DONE, _:
            return [_ignored(arrival, "the run is over")]
        case _, Cancel() as cancel:
            return [
                ev.CancelRequested(reason=cancel.reason, sender=cancel.sender),
                finished(run, "cancelled", error=ErrorInfo("Cancelled", cancel.reason or "cancelled")),
            ]
        case _, Poisoned() as poisoned:
            return [finished(run, "error", error=_poison(poisoned))]
        case _, TimerFired(name=name) if name == DEADLINE and run.deadline is not None:
            return [finished(run, "error", output=findings_of(run), error=out_of_time())]
        case Phase.THINKING, ModelReplied() as reply if _is_current(run, reply.attempt):
            return _on_reply(run, reply, arrival)
        case Phase.THINKING, ModelFailed() as failure if _is_current(run, failure.attempt):
            return on_model_failure(run, failure, arrival)
        case Phase.THINKING, ModelLost() as lost if _is_current(run, lost.attempt):
            return _again(run, arrival, lost.attempt + 1)
        case Phase.WAITING, TimerFired() as timer if run.deferral and run.deferral.timer == timer.name:
            return _again(run, arrival, run.deferral.attempt + 1)
        case Phase.ACTING, ToolResult() as result if run.recalling and run.recalling.call == result.call:
            return on_memories(run, result, arrival)
        case Phase.ACTING, TimerFired() as timer if run.recalling and (
            call_of(timer.name, "call") == run.recalling.call
        ):
            return on_no_memories(run, run.recalling, arrival)
        case Phase.ACTING, ToolResult() as result if _is_open(run, result.call):
            return on_result(run, result, arrival)
        case Phase.ACTING, Report() as report if _is_open(run, report.child):
            return on_report(run, report, arrival)
        case Phase.ACTING, CodeYielded() as yielded if is_awaited(run, yielded) and yielded.calls:
            return on_calls(run, yielded, arrival)
        case Phase.ACTING, CodeFinished() as ended if is_awaited(run, ended):
            return on_end(run, ended, arrival)
        case Phase.ACTING, Decision() as decision if held := held_call(run, decision.call):
            return on_decision(run, held, decision, arrival)
        case Phase.ACTING, TimerFired() as timer if (call := call_of(timer.name, "approval")) and (
            held := held_call(run, call)
        ):
            return on_expiry(run, held, arrival)
        case Phase.ACTING, TimerFired() as timer if (call := call_of(timer.name, "call")) and _is_open(
            run, call
        ):
            return on_time_out(run, call, arrival)
        case _:
            return _unawaited(run, arrival)


def _unawaited(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    what = arrival.what
    if isinstance(what, Report) and what.child in run.strays:
        return [told(what)]
    return [_ignored(arrival, f"not awaited while {run.phase.value}")]


def _on_reply(run: Run, reply: ModelReplied, arrival: Arrival) -> list[ev.AnyEvent]:
    model = run.model
    assert model is not None
    answered = ev.ModelAnswered(
        purpose=model.purpose,
        step=model.step,
        attempt=model.attempt,
        content=reply.content,
        calls=reply.calls,
        usage=reply.usage,
        model=reply.model,
        finish_reason=reply.finish_reason,
        seconds=reply.seconds,
        unpriced=reply.unpriced,
    )
    match model.purpose:
        case "plan":
            return [answered, *begin_model_call(run, arrival, "act", model.step)]
        case "act":
            return [answered, *act_on_answer(run, reply, arrival, model.step)]
        case "final":
            return [answered, conclude(run, reply)]
        case "summary":
            return on_summary(run, reply, answered, arrival)


def _again(run: Run, arrival: Arrival, attempt: int) -> list[ev.AnyEvent]:
    """The same model call once more, now belonging to the record in hand."""
    about = run.model or run.deferral
    assert about is not None
    return begin_model_call(run, arrival, about.purpose, about.step, attempt=attempt, then=about.then)


def _is_current(run: Run, attempt: int) -> bool:
    return run.model is not None and run.model.attempt == attempt


def _is_open(run: Run, call: str) -> bool:
    """Whether an answer to the call is awaited: it was sent, and has none."""
    return any(state.id == call and state.hold is None for state in run.open_calls())


def _poison(poisoned: Poisoned) -> ErrorInfo:
    text = f"record {poisoned.id} was delivered {poisoned.deliveries} times and never handled to the end"
    if poisoned.why:
        text += f": {poisoned.why}"
    return ErrorInfo("Poisoned", text)


def _ignored(arrival: Arrival, reason: str) -> ev.RecordIgnored:
    return ev.RecordIgnored(kind=type(arrival.what).__name__, reason=reason)
