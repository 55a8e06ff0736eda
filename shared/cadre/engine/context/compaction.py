"""A run whose memory outgrows its model's context: earlier steps are summarized, and the summary with them later on.

Checked before each model call (SuperAGI's split of the history into what fits and what does not, and its recursive
summary). What is kept word for word is the latest half of what fits, so that a summary serves many steps: messages only
grow in between, and a long run costs in proportion to its steps.
"""

from __future__ import annotations

import copy

import msgspec

from cadre.engine.context.context_budget import limit, room, summary_tokens, to_cover, weigh, weights_of
from cadre.engine.context.observation import clip
from cadre.engine.context.tokens import fit, tokens_of
from cadre.engine.steps import begin_model_call
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.run import (
    ActionStep,
    AnswerStep,
    PlanningStep,
    Postponed,
    RecalledStep,
    Run,
    Step,
    TaskStep,
)
from cadre.loop.fold import apply
from cadre.protocol.messages import ErrorInfo

_TOLD = 300
"""Characters of each observation in a digest."""

MOST_REFUSALS = 6
"""Requests refused as too long after which a run gives up."""


def within_context(run: Run, events: list[ev.AnyEvent], arrival: Arrival) -> list[ev.AnyEvent]:
    """The events, with a summary in place of a model call that the context has no room for."""
    call = events[-1]
    if not isinstance(call, ev.ModelCalled) or call.purpose == "summary":
        return events
    if call.attempt == 1 and not _is_full(run, events):
        return events
    overflowed = any(isinstance(event, ev.ContextOverflowed) for event in events)
    if not overflowed and (call.attempt > 1 or any(isinstance(e, ev.HistorySummarized) for e in events)):
        return events
    # A copy costs something, once in many steps.
    after = copy.deepcopy(run)
    for event in events[:-1]:
        apply(after, event, run.entries + 1, arrival.at)
    if to_cover(after) is not None:
        postponed = Postponed(call.purpose, call.attempt)
        return [*events[:-1], _begin(after, call.step, call.cause, postponed)]
    if after.base > limit(after):
        return [*events[:-1], ev.RunFinished(state="error", error=_no_room(after), steps=after.step)]
    return events


def _is_full(run: Run, events: list[ev.AnyEvent]) -> bool:
    first, news = events[0], events[max(0, len(events) - 2)]
    if isinstance(first, ev.RunAccepted):
        return _begins_full(first, events)
    base = news.base if isinstance(news, ev.OfferChanged) and news.base else run.base
    most = limit(run)
    # What a step has seen takes up half of the context at most (see `per_step`): no need to weigh it then.
    if 4 * (base + run.weight) <= most and not isinstance(first, ev.ModelAnswered):
        return False
    return base + run.weight + sum(weigh(run, event) for event in events) > most


def _begins_full(begun: ev.RunAccepted, events: list[ev.AnyEvent]) -> bool:
    """Roughly: what the run goes on from may fill the context by itself."""
    before = [*begun.history, *begun.prefix]
    task, most = begun.task, room(begun.spec)
    offered = max((e.base for e in events if isinstance(e, ev.OfferChanged)), default=0)
    if not before and not task.additional_args and 4 * max(offered, begun.base, 4 * len(task.task)) <= most:
        return False
    given = 3 * tokens_of(task.task)
    if task.additional_args:
        given += 3 * tokens_of(msgspec.json.encode(task.additional_args).decode())
    weight = given + sum(weights_of(before, Run(id="", tree="", spec=begun.spec)))
    return max(begun.base, offered) + weight > most


def _begin(run: Run, step: int, cause: str, then: Postponed) -> ev.ModelCalled:
    before = run.summary
    attempt = before.attempt + 1 if before is not None and before.step == step else 1
    return ev.ModelCalled(purpose="summary", step=step, attempt=attempt, cause=cause, then=then)


def _no_room(run: Run) -> ErrorInfo:
    text = (
        f"The instructions and tools of {run.agent!r} alone take about {run.base} tokens, and its model's context has"
        f" room for {limit(run)}: offer it fewer tools, or set model.context to what the model really takes."
    )
    return ErrorInfo("AgentGenerationError", text)


# --- what comes of it


def on_summary(
    run: Run, reply: ModelReplied, answered: ev.ModelAnswered, arrival: Arrival
) -> list[ev.AnyEvent]:
    text = reply.content.strip()
    return [answered, *_summarized(run, arrival, text or digest(run), digest=not text)]


def without_model(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """No model writes the summary: the steps are told in short, and the run goes on."""
    return _summarized(run, arrival, digest(run), digest=True)


def _summarized(run: Run, arrival: Arrival, text: str, *, digest: bool) -> list[ev.AnyEvent]:
    model, covers = run.model, to_cover(run)
    assert model is not None
    assert model.then is not None
    summarized = ev.HistorySummarized(
        step=model.step,
        attempt=model.attempt,
        text=fit(text, summary_tokens(run)),
        covers=covers if covers is not None else len(run.memory),
        digest=digest,
    )
    then = model.then
    return [summarized, *begin_model_call(run, arrival, then.purpose, model.step, attempt=then.attempt)]


def digest(run: Run) -> str:
    """Earlier steps in a line or two each, the latest first to stay when there is no room for all."""
    first = run.summary.covers if run.summary is not None else 0
    covered = run.memory[first : to_cover(run)]
    told = [run.summary.text] if run.summary is not None else []
    told += [line for step in covered if (line := _in_short(step))]
    return "\n".join(told)


def _in_short(step: Step) -> str:
    match step:
        case TaskStep():
            return f"Task: {clip(step.task, _TOLD)}"
        case PlanningStep():
            return ""
        case RecalledStep():
            return ""
        case AnswerStep():
            return f"Answer: {clip(str(step.output), _TOLD)}"
        case ActionStep():
            told = [f"Step {step.number}: {clip(step.content, _TOLD)}".rstrip()]
            told += [
                f"{call.name}: {clip(call.observation or (call.error.message if call.error else ''), _TOLD)}"
                for call in step.calls
            ]
            told += [clip(step.observation, _TOLD)] if step.observation else []
            told += [f"Error: {clip(step.error.message, _TOLD)}"] if step.error else []
            return "\n".join(told)


# --- an endpoint that refuses


def on_overflow(run: Run, reason: str, arrival: Arrival) -> list[ev.AnyEvent] | None:
    """Counts more carefully and tries again; None when that has not helped often enough."""
    model = run.model
    assert model is not None
    if run.tight >= MOST_REFUSALS:
        return None
    overflowed = ev.ContextOverflowed(step=model.step, attempt=model.attempt, reason=reason)
    again = begin_model_call(
        run, arrival, model.purpose, model.step, attempt=model.attempt + 1, then=model.then
    )
    return [overflowed, *again]
