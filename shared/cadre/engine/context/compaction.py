"""A run whose memory outgrows its model's context: earlier steps are summarized, and the summary with them later on.

Checked before each model call by `Draft.call_model` (SuperAGI's split of the history into what fits and what does
not, and its recursive summary). What is kept word for word is the latest half of what fits, so that a summary serves
many steps: messages only grow in between, and a long run costs in proportion to its steps.
"""

from cadre.engine.answers.reasoning import for_people
from cadre.engine.calls.calls_in_text import calls_alone
from cadre.engine.context.context_budget import summary_tokens, to_cover
from cadre.engine.context.text_size import clip, fit
from cadre.engine.draft import Draft
from cadre.engine.kind import account_of
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelFailed, ModelReplied
from cadre.journal.run import (
    ActionStep,
    AnswerStep,
    MessageStep,
    PlanningStep,
    RecalledStep,
    Run,
    Step,
    TaskStep,
)
from cadre.spec.kinds import facts_of

_DIGEST_CHARS = 300
"""Characters of each observation in a digest."""

MOST_REFUSALS = 6
"""Requests refused as too long after which a run gives up."""


def on_summary(draft: Draft, reply: ModelReplied) -> None:
    """Go on with the model's summary of the history."""
    # Small models go on calling; what they would have called is no summary.
    text = "" if reply.calls or calls_alone(draft.run, reply.content) else for_people(reply.content).strip()
    _summarize(draft, text or digest(draft.run), without_model=not text)


def without_model(draft: Draft) -> None:
    """Go on although no model writes the summary: the steps are given in short."""
    _summarize(draft, digest(draft.run), without_model=True)


def _summarize(draft: Draft, text: str, *, without_model: bool) -> None:
    run, model, covers = draft.run, draft.asked, to_cover(draft.run)
    assert model is not None
    assert model.postponed is not None
    draft.emit(
        ev.HistorySummarized(
            step=model.step,
            attempt=model.attempt,
            text=fit(text, summary_tokens(run)),
            covers=covers if covers is not None else len(run.steps),
            without_model=without_model,
        )
    )
    draft.call_model(model.postponed.purpose, model.step, model.postponed.attempt)


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
            account = account_of(step)
            lines += [clip(account.seen, _DIGEST_CHARS)] if account is not None and account.seen else []
            lines += [f"Error: {clip(step.error.message, _DIGEST_CHARS)}"] if step.error else []
            return "\n".join(lines)


# --- an endpoint that refuses


def on_overflow(draft: Draft, failure: ModelFailed) -> bool:
    """Count more carefully and try again. Return False if that has not helped often enough."""
    model = draft.asked
    assert model is not None
    if draft.run.overflows >= MOST_REFUSALS or not facts_of(draft.spec, draft.run.decided_by).reads_steps:
        return False
    draft.emit(
        ev.ContextOverflowed(
            step=model.step,
            attempt=model.attempt,
            reason=failure.message,
            context=failure.context,
            tokens=failure.tokens,
        )
    )
    draft.call_model(model.purpose, model.step, model.attempt + 1, model.postponed)
    return True
