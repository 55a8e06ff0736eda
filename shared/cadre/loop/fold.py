"""From events to state: `apply` takes a run one event further, `fold` takes it through a journal.

`apply` changes the run in place: whoever folded it owns it. That keeps the cost of a step independent
of how many came before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from cadre.code_exchange import CodeReply
from cadre.loop import events as ev
from cadre.loop.fold_calls import (
    close_call,
    decide_call,
    failure_of,
    open_call,
    revoke,
    time_out_call,
)
from cadre.loop.fold_code import await_calls, end_code, note_reply, start_code
from cadre.loop.observation import observation_of
from cadre.loop.reading_code import closed
from cadre.loop.run import (
    ActionStep,
    AnswerStep,
    Deferral,
    ModelInFlight,
    Phase,
    PlanningStep,
    Result,
    Run,
    TaskStep,
)
from cadre.messages import Usage


def fold(entries: Iterable[ev.Entry], run: str, tree: str) -> Run:
    """The state that a journal, from its last snapshot on, tells of."""
    state = Run(id=run, tree=tree)
    for entry in entries:
        if entry.snapshot is not None:
            state = entry.snapshot
        apply_entry(state, entry)
    return state


def apply_entry(run: Run, entry: ev.Entry) -> None:
    run.entries = entry.n
    run.seen.add(entry.cause)
    for event in entry.events:
        apply(run, event, entry.n, entry.at)


def apply(run: Run, event: ev.AnyEvent, n: int, at: float) -> None:
    """Makes `event`, of the journal's entry `n`, true of the run."""
    match event:
        case ev.RunAccepted():
            _accept(run, event, n, at)
        case ev.OfferChanged():
            run.tools = {tool.name: tool for tool in event.tools}
            run.members = {member.name: member for member in event.members}
            run.missing = event.missing
        case ev.ModelCalled():
            _call_model(run, event, n, at)
        case ev.ModelAnswered():
            _answer(run, event)
        case ev.ModelDeferred():
            _defer(run, event, n, at)
        case ev.ApprovalRequested() | ev.ToolCalled() | ev.DelegateStarted() | ev.CallRefused():
            open_call(run, event, n, at)
        case ev.ApprovalDecided():
            decide_call(run, event, n, at)
        case ev.ToolAnswered():
            close_call(run, event.call, n, at, observation_of(event.output), event.error)
            error = event.error.message if event.error is not None else None
            note_reply(run, event.call, CodeReply(value=event.output, error=error, blob=event.blob), n, at)
        case ev.DelegateFinished():
            failure = failure_of(event)
            close_call(run, event.call, n, at, event.text, failure)
            reply = CodeReply(value=event.text) if failure is None else CodeReply(error=failure.message)
            note_reply(run, event.call, reply, n, at)
            run.usage += event.usage
        case ev.CallTimedOut():
            time_out_call(run, event, n, at)
        case ev.BlockStarted():
            start_code(run, event, n, at)
        case ev.BlockYielded():
            await_calls(run, event)
        case ev.BlockFinished():
            end_code(run, event)
        case ev.StepFinished():
            _finish_step(run, event, at)
        case ev.RunFinished():
            _finish(run, event, n, at)
        case ev.CancelRequested():
            run.cancelled = event.reason
        case ev.RecordIgnored():
            pass  # told for the reader only
        case _:
            assert_never(event)


def _accept(run: Run, event: ev.RunAccepted, n: int, at: float) -> None:
    task = event.task
    run.agent = task.agent
    run.task, run.spec = task, event.spec
    run.started_at = at
    run.accepted = n
    run.deadline, run.budget = event.deadline, event.budget
    run.phase = Phase.ACTING  # nothing open: the next event begins a model call or ends the run
    step = TaskStep(task=with_arguments(task.task, task.additional_args), images=task.images)
    step.delegated = task.reply_to is not None or (task.forks is not None and task.forks.delegated)
    run.memory = [*event.history, step, *event.prefix]
    run.step = task.forks.at - 1 if task.forks is not None else 0
    run.snapshot = run.inherited = _variables_left(run)


def _variables_left(run: Run) -> str | None:
    """By the code of the run that this one goes on from."""
    steps = (step for step in reversed(run.memory) if isinstance(step, ActionStep))
    return next((step.snapshot for step in steps if step.snapshot is not None), None)


def with_arguments(task: str, arguments: dict[str, Any]) -> str:
    """The task as its agent reads it: it learns by name which variables it was given."""
    if not arguments:
        return task
    given = msgspec.json.encode(arguments).decode()
    return f"{task}\n\nThese additional arguments come with the task; use them by their names:\n{given}"


def _call_model(run: Run, event: ev.ModelCalled, n: int, at: float) -> None:
    if run.step != event.step and event.purpose == "act":
        run.step = event.step
    if event.attempt == 1:
        run.failures, run.troubled_since = 0, None
    run.deferral = None
    run.phase = Phase.THINKING
    run.model = ModelInFlight(
        purpose=event.purpose, step=event.step, attempt=event.attempt, cause=event.cause, since=n, at=at
    )


def _answer(run: Run, event: ev.ModelAnswered) -> None:
    started = run.model.at if run.model else 0.0
    run.model = None
    run.phase = Phase.ACTING
    run.usage += event.usage + Usage(model_calls=1)
    if event.unpriced:
        run.unpriced = event.model or "the model"
    if event.purpose == "plan":
        first = all(isinstance(step, TaskStep) for step in run.memory)
        run.memory.append(PlanningStep(plan=event.content, first=first))
    elif event.purpose == "act":
        run.current = ActionStep(
            number=event.step,
            content=_as_said(run, event.content),
            native=bool(event.calls),
            started_at=started,
        )


def _as_said(run: Run, content: str) -> str:
    """The answer as its model will read it again."""
    if run.spec is None or run.spec.kind != "code" or run.spec.code.structured:
        return content
    return closed(content, run.spec.code)


def _defer(run: Run, event: ev.ModelDeferred, n: int, at: float) -> None:
    purpose, cause = (run.model.purpose, run.model.cause) if run.model else ("act", "")
    run.model = None
    run.phase = Phase.WAITING
    run.failures += not event.rate_limited
    run.troubled_since = run.troubled_since if run.troubled_since is not None else at
    run.deferral = Deferral(
        timer=f"model-{purpose}-{event.step}-{event.attempt}",
        until=event.until,
        since=n,
        purpose=purpose,
        step=event.step,
        attempt=event.attempt,
        at=at,
        cause=cause,
    )


def _finish_step(run: Run, event: ev.StepFinished, at: float) -> None:
    run.usage += Usage(steps=1)
    if run.current is not None:
        run.current.error = event.error
        run.current.ended_at = at
        run.memory.append(run.current)
        run.current = None


def _finish(run: Run, event: ev.RunFinished, n: int, at: float) -> None:
    if run.current is not None:
        reason = f"{run.agent} ended: {event.error.message if event.error else event.state}"
        for call in run.open_calls():
            revoke(run, call, n, at, reason)
    run.model, run.deferral, run.code = None, None, None
    run.phase = Phase.DONE
    run.result = Result(state=event.state, output=event.output, error=event.error, since=n, at=at)
    if event.state in ("success", "max_steps_error"):
        run.memory.append(AnswerStep(output=event.output))
