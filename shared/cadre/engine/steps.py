"""The course of a run: how it begins, when it plans, what follows a step, how it ends."""

from __future__ import annotations

from typing import Any

from cadre.engine.budget import budget_of, deadline_of
from cadre.engine.context.observation import clip
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Postponed, Purpose, Run
from cadre.protocol.messages import ErrorInfo, RunState, Task
from cadre.protocol.topology import call_id
from cadre.spec.agent import AgentSpec

_QUESTION = 2_000
"""Characters of a task that the memory service is asked with."""


def begin(run: Run, task: Task, arrival: Arrival) -> list[ev.AnyEvent]:
    """Accepts the task and thinks for the first time: before step 1, or before the step that it forks at."""
    if arrival.problem:
        return [accepted(task, arrival), finished(run, "error", error=ErrorInfo("NotFound", arrival.problem))]
    # A fork has what the other run was given.
    if arrival.spec.memory.recall and task.forks is None:
        asked = ev.MemoryAsked(
            call=call_id(run.id, 0, 0), query=clip(task.task, _QUESTION), count=arrival.spec.memory.recall
        )
        return [accepted(task, arrival), asked]
    return [accepted(task, arrival), *first_call(run, arrival, task, arrival.spec)]


def first_call(run: Run, arrival: Arrival, task: Task, spec: AgentSpec) -> list[ev.AnyEvent]:
    """The run thinks for the first time."""
    number = task.forks.at if task.forks is not None else 1
    if number > (task.max_steps or spec.limits.max_steps):
        return begin_model_call(run, arrival, "final", number - 1)
    return next_step(run, arrival, number, interval=spec.planning_interval)


def accepted(task: Task, arrival: Arrival) -> ev.RunAccepted:
    return ev.RunAccepted(
        task=task,
        spec=arrival.spec,
        history=arrival.history,
        prefix=arrival.prefix,
        deadline=deadline_of(task, arrival.spec, arrival.at),
        budget=budget_of(task, arrival.spec),
        base=arrival.base,
    )


def next_step(run: Run, arrival: Arrival, number: int, *, interval: int | None) -> list[ev.AnyEvent]:
    """Begins step `number`, with a plan first when one is due (before steps 1, 1+n, 1+2n …)."""
    purpose: Purpose = "plan" if interval and (number - 1) % interval == 0 else "act"
    return begin_model_call(run, arrival, purpose, number)


def begin_model_call(
    run: Run,
    arrival: Arrival,
    purpose: Purpose,
    step: int,
    *,
    attempt: int = 1,
    then: Postponed | None = None,
) -> list[ev.AnyEvent]:
    called = ev.ModelCalled(purpose=purpose, step=step, attempt=attempt, cause=arrival.cause, then=then)
    return [*_news_of_the_offer(run, arrival), called]


def after_step(
    run: Run, arrival: Arrival, number: int, *, error: ErrorInfo | None = None
) -> list[ev.AnyEvent]:
    """Ends step `number` and begins what comes next: another step, or the answer after the last one."""
    ended = ev.StepFinished(step=number, error=error)
    if number >= run.max_steps:
        return [ended, *begin_model_call(run, arrival, "final", number)]
    interval = run.spec.planning_interval if run.spec else None
    return [ended, *next_step(run, arrival, number + 1, interval=interval)]


def after_call(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """The step goes on until its last open call has been answered, by this very arrival, or its code has ended."""
    if len(run.open_calls()) > 1 or run.current is None or run.code is not None:
        return []
    return after_step(run, arrival, run.current.number)


def finished(
    run: Run, state: RunState, *, output: Any = None, error: ErrorInfo | None = None
) -> ev.RunFinished:
    """`transition` adds the usage, which the events beside this one are part of."""
    return ev.RunFinished(state=state, output=output, error=error, steps=run.step)


def _news_of_the_offer(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """What the model may call is journaled when it differs from what the run knows."""
    offer = arrival.offer
    if offer.tools == run.tools and offer.members == run.members and offer.missing == run.missing:
        return []
    return [
        ev.OfferChanged(
            tools=list(offer.tools.values()),
            members=list(offer.members.values()),
            missing=offer.missing,
            base=arrival.base_with_offer,
        )
    ]
