"""A run whose memory outgrows its model's context: earlier steps are summarized, and the summary with them later on.

Checked before each model call by `cadre.loop.guards` (SuperAGI's split of the history into what fits and what does
not, and its recursive summary). What is kept word for word is the latest half of what fits, so that a summary serves
many steps: messages only grow in between, and a long run costs in proportion to its steps.
"""

from cadre.engine.context.context_budget import summary_tokens, to_cover
from cadre.engine.context.observation import clip
from cadre.engine.context.tokens import fit
from cadre.engine.kind import deed_of
from cadre.engine.steps import begin_model_call
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.run import Run
from cadre.journal.steps import (
    ActionStep,
    AnswerStep,
    MessageStep,
    PlanningStep,
    RecalledStep,
    Step,
    TaskStep,
)

_DIGEST_CHARS = 300
"""Characters of each observation in a digest."""

MOST_REFUSALS = 6
"""Requests refused as too long after which a run gives up."""


def on_summary(
    run: Run, reply: ModelReplied, answered: ev.ModelAnswered, arrival: Arrival
) -> list[ev.AnyEvent]:
    """What follows from the model's summary of the history."""
    text = reply.content.strip()
    return [answered, *_summarized(run, arrival, text or digest(run), without_model=not text)]


def without_model(run: Run, arrival: Arrival) -> list[ev.AnyEvent]:
    """No model writes the summary: the steps are told in short, and the run goes on."""
    return _summarized(run, arrival, digest(run), without_model=True)


def _summarized(run: Run, arrival: Arrival, text: str, *, without_model: bool) -> list[ev.AnyEvent]:
    model, covers = run.model, to_cover(run)
    assert model is not None
    assert model.postponed is not None
    summarized = ev.HistorySummarized(
        step=model.step,
        attempt=model.attempt,
        text=fit(text, summary_tokens(run)),
        covers=covers if covers is not None else len(run.steps),
        without_model=without_model,
    )
    next_call = begin_model_call(
        run, arrival, model.postponed.purpose, model.step, attempt=model.postponed.attempt
    )
    return [summarized, *next_call]


def digest(run: Run) -> str:
    """Earlier steps in a line or two each, the latest first to stay when there is no room for all."""
    first = run.summary.covers if run.summary is not None else 0
    covered = run.steps[first : to_cover(run)]
    lines = [run.summary.text] if run.summary is not None else []
    lines += [line for step in covered if (line := _in_short(step))]
    return "\n".join(lines)


def _in_short(step: Step) -> str:
    match step:
        case TaskStep():
            return f"Task: {clip(step.task, _DIGEST_CHARS)}"
        case PlanningStep():
            return ""
        case RecalledStep():
            return ""
        case MessageStep():
            return f"Message: {clip(step.text, _DIGEST_CHARS)}"
        case AnswerStep():
            return f"Answer: {clip(str(step.output), _DIGEST_CHARS)}"
        case ActionStep():
            lines = [f"Step {step.number}: {clip(step.content, _DIGEST_CHARS)}".rstrip()]
            lines += [
                f"{call.name}: {clip(call.observation or (call.error.message if call.error else ''), _DIGEST_CHARS)}"
                for call in step.calls
            ]
            deed = deed_of(step)
            lines += [clip(deed.seen, _DIGEST_CHARS)] if deed is not None and deed.seen else []
            lines += [f"Error: {clip(step.error.message, _DIGEST_CHARS)}"] if step.error else []
            return "\n".join(lines)


# --- an endpoint that refuses


def on_overflow(run: Run, failure: ModelFailed, arrival: Arrival) -> list[ev.AnyEvent] | None:
    """Counts more carefully and tries again; None when that has not helped often enough."""
    model = run.model
    assert model is not None
    if run.overflows >= MOST_REFUSALS:
        return None
    overflowed = ev.ContextOverflowed(
        step=model.step,
        attempt=model.attempt,
        reason=failure.message,
        context=failure.context,
        tokens=failure.tokens,
    )
    again = begin_model_call(
        run, arrival, model.purpose, model.step, attempt=model.attempt + 1, postponed=model.postponed
    )
    return [overflowed, *again]
