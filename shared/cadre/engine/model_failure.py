"""When a model call gets no answer: wait and try again, ask another model, or end the run with a clear word.

A rate limit is a wait, however long the endpoint asks for (within `model.patience`); other passing
failures have `model.retries` tries; a refused request is not tried again. What is left then are the agent's
`model.fallbacks`; behind the last of them the run ends. After the last step the failure itself becomes the answer, as
in smolagents.
"""

from cadre.engine.context.compaction import on_overflow, without_model
from cadre.engine.draft import Draft
from cadre.engine.model_choice import asked_model, next_fallback, tries
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelFailed
from cadre.journal.run import SUMMARY
from cadre.protocol.messages import ErrorInfo

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 60.0


def on_model_failure(draft: Draft, failure: ModelFailed) -> None:
    """Decide what follows from a model call that failed: another try, a wait, another model, a summary, or the end."""
    run, model = draft.run, draft.asked
    assert model is not None
    asked = asked_model(run)
    if failure.too_long and on_overflow(draft, failure):
        return
    wait = wait_before(failure, tries=tries(run))
    since = run.failing_since if run.failing_since is not None else draft.at
    patient = draft.at + wait - since <= asked.patience
    tries_left = failure.rate_limited or run.failures < asked.retries
    if not failure.final and patient and tries_left:
        draft.emit(
            ev.ModelDeferred(
                step=model.step,
                attempt=model.attempt,
                until=draft.at + wait,
                reason=failure.message,
                status=failure.status,
                rate_limited=failure.rate_limited,
            )
        )
    elif not failure.too_long and (fallback := next_fallback(run)) is not None:
        attempt = model.attempt + 1
        draft.call_model(
            model.purpose, model.step, attempt, model.postponed, fallback=fallback, reason=failure.message
        )
    elif model.purpose == SUMMARY:
        without_model(draft)
    else:
        draft.give_up(ErrorInfo("no-answer", failure.message))


def wait_before(failure: ModelFailed, *, tries: int) -> float:
    """Seconds until the next try: what the endpoint asks for, else twice as long each time."""
    if failure.retry_after is not None:
        return failure.retry_after
    doubled: float = _FIRST_WAIT * 2 ** min(tries - 1, 10)
    return min(doubled, _LONGEST_WAIT)
