"""The course of a run, common to all kinds: its beginning, its model calls, its end."""

from typing import Any

from cadre.engine.budget import budget_of, deadline_of
from cadre.engine.model_choice import fallback_of_call, made_to
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Postponed, Run
from cadre.journal.steps import CallState
from cadre.protocol.messages import Decision, ErrorInfo, Report, RunState, Task, TimerFired, ToolResult
from cadre.protocol.rounds import call_of_round
from cadre.spec.kinds import decided_by, declaration_of


def accepted(task: Task, arrival: Arrival) -> ev.RunAccepted:
    """The task is this run's. Here alone it is found out which kind decides the run, in its version of today."""
    kind = arrival.decided_by or decided_by(arrival.spec)
    return ev.RunAccepted(
        task=task,
        spec=arrival.spec,
        history=arrival.history,
        prefix=arrival.prefix,
        deadline=deadline_of(task, arrival.spec, arrival.at),
        budget=budget_of(task, arrival.spec),
        fixed_tokens=arrival.base,
        decided_by=kind,
        kind_version=arrival.kind_version or declaration_of(kind).version,
        revision=arrival.revision,
        prompts=arrival.prompts,
    )


def step_in_work(run: Run) -> int:
    """Number of the step that a decision is about: the one whose calls are open, or whose model call was answered."""
    if run.current is not None:
        return run.current.number
    return run.model.step if run.model is not None else run.step


def still_open(run: Run, arrival: Arrival) -> list[CallState]:
    """The open calls of the step but for the one that this very arrival settles."""
    match arrival.what:
        case ToolResult(call=call) | Report(child=call) | Decision(call=call):
            settled = call
        case TimerFired(name=name):
            settled = call_of_round(name.partition("-")[2])
        case _:
            settled = ""
    return [call for call in run.open_calls() if call.id != settled]


def begin_model_call(
    run: Run,
    arrival: Arrival,
    purpose: str,
    step: int,
    *,
    attempt: int = 1,
    postponed: Postponed | None = None,
) -> list[ev.AnyEvent]:
    """The call, after what is new in the offer."""
    called = ev.ModelCalled(
        purpose=purpose, step=step, attempt=attempt, cause=arrival.cause, postponed=postponed
    )
    called = made_to(run, called, fallback_of_call(run, arrival.at, attempt))
    return [*news_of_the_offer(run, arrival), called]


def finished(
    run: Run, state: RunState, *, output: Any = None, error: ErrorInfo | None = None
) -> ev.RunFinished:
    """The end. `transition` adds the usage, which the events beside this one are part of."""
    return ev.RunFinished(state=state, output=output, error=error, steps=run.step)


def news_of_the_offer(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """What the model may call is journaled when it differs from what the run knows."""
    offer = arrival.offer
    known = (run.tools, run.members, run.missing, run.checks_with_calls)
    if (offer.tools, offer.members, offer.missing, offer.checks_with_calls) == known:
        return []
    return [
        ev.OfferChanged(
            tools=list(offer.tools.values()),
            members=list(offer.members.values()),
            missing=offer.missing,
            checks_with_calls=offer.checks_with_calls,
            fixed_tokens=arrival.base_with_offer,
        )
    ]
