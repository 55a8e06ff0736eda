"""What becomes true when something arrives at a run: the whole of an agent's decisions, pure.

`transition` is one match over (phase, arrival); what it returns is appended to the journal as one entry.
An arrival that no case takes is late, unknown or a duplicate: it is accounted for and changes nothing.
"""

from __future__ import annotations

from cadre.loop import events as ev
from cadre.loop.answering import act_on_answer, conclude
from cadre.loop.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned
from cadre.loop.course import accepted, after_step, begin, begin_model_call, finished
from cadre.loop.run import Phase, Run
from cadre.loop.trouble import on_model_failure
from cadre.messages import Cancel, ErrorInfo, Report, Task, TimerFired, ToolResult


def transition(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """The events that the arrival makes true of the run; at least one."""
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
        case Phase.THINKING, ModelReplied() as reply if _is_current(run, reply.attempt):
            return _on_reply(run, reply, arrival)
        case Phase.THINKING, ModelFailed() as failure if _is_current(run, failure.attempt):
            return on_model_failure(run, failure, arrival)
        case Phase.THINKING, ModelLost() as lost if _is_current(run, lost.attempt):
            return _again(run, arrival, lost.attempt + 1)
        case Phase.WAITING, TimerFired() as timer if run.deferral and run.deferral.timer == timer.name:
            return _again(run, arrival, run.deferral.attempt + 1)
        case Phase.ACTING, ToolResult() as result if _is_open(run, result.call):
            answered = ev.ToolAnswered(
                call=result.call,
                tool=result.tool,
                output=result.output,
                error=result.error,
                blob=result.blob,
                executor=result.executor,
                seconds=max(0.0, result.at - result.started_at) if result.started_at else 0.0,
            )
            return [answered, *_after_call(run, arrival)]
        case Phase.ACTING, Report() as report if _is_open(run, report.child):
            delegated = ev.DelegateFinished(
                call=report.child,
                member=report.agent,
                state=report.state,
                output=report.output,
                text=report.text,
                error=report.error,
                usage=report.usage,
                steps=report.steps,
            )
            return [delegated, *_after_call(run, arrival)]
        case _:
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
    )
    match model.purpose:
        case "plan":
            return [answered, *begin_model_call(run, arrival, "act", model.step)]
        case "act":
            return [answered, *act_on_answer(run, reply, arrival, model.step)]
        case "final":
            return [answered, conclude(run, reply)]


def _again(run: Run, arrival: Arrival, attempt: int) -> list[ev.AnyEvent]:
    """The same model call once more, now belonging to the record in hand."""
    about = run.model or run.deferral
    assert about is not None
    return begin_model_call(run, arrival, about.purpose, about.step, attempt=attempt)


def _after_call(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """The step goes on until its last open call has been answered, by this very arrival."""
    if len(run.open_calls()) > 1 or run.current is None:
        return []
    return after_step(run, arrival, run.current.number)


def _is_current(run: Run, attempt: int) -> bool:
    return run.model is not None and run.model.attempt == attempt


def _is_open(run: Run, call: str) -> bool:
    return any(state.id == call for state in run.open_calls())


def _poison(poisoned: Poisoned) -> ErrorInfo:
    text = f"record {poisoned.id} was delivered {poisoned.deliveries} times and never handled to the end"
    return ErrorInfo("Poisoned", text)


def _ignored(arrival: Arrival, reason: str) -> ev.RecordIgnored:
    return ev.RecordIgnored(kind=type(arrival.what).__name__, reason=reason)
