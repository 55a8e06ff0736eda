"""When a model call gets no answer: wait and try again, ask another model, or end the run with a clear word.

A rate limit is a wait, however long the endpoint asks for (within `model.patience`); other passing
failures have `model.retries` tries; a refused request is not tried again. What is left then are the agent's
`model.fallbacks`; behind the last of them the run ends. After the last step the failure itself becomes the answer, as
in smolagents.
"""

from cadre.engine.carry_out import carry_out
from cadre.engine.context.compaction import on_overflow, without_model
from cadre.engine.kind import kind_of
from cadre.engine.model_choice import asked_model, made_to, next_fallback, tries
from cadre.engine.steps import begin_model_call, finished
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed
from cadre.journal.run import SUMMARY, Run
from cadre.protocol.messages import ErrorInfo

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 60.0


def on_model_failure(run: Run, failure: ModelFailed, arrival: Arrival) -> list[ev.AnyEvent]:
    """What follows from a model call that failed: another try, a wait, another model, a summary, or the end."""
    model = run.model
    assert model is not None
    asked = asked_model(run)
    if failure.too_long and (again := on_overflow(run, failure, arrival)) is not None:
        return again
    wait = wait_before(failure, tries=tries(run))
    since = run.failing_since if run.failing_since is not None else arrival.at
    patient = arrival.at + wait - since <= asked.patience
    tries_left = failure.rate_limited or run.failures < asked.retries
    if not failure.final and patient and tries_left:
        return [
            ev.ModelDeferred(
                step=model.step,
                attempt=model.attempt,
                until=arrival.at + wait,
                reason=failure.message,
                status=failure.status,
                rate_limited=failure.rate_limited,
            )
        ]
    if not failure.too_long and (fallback := next_fallback(run)) is not None:
        attempt = model.attempt + 1
        *news, called = begin_model_call(
            run, arrival, model.purpose, model.step, attempt=attempt, postponed=model.postponed
        )
        assert isinstance(called, ev.ModelCalled)
        return [*news, made_to(run, called, fallback, failure.message)]
    if model.purpose == SUMMARY:
        return without_model(run, arrival)
    moves = kind_of(run).gave_up(run, model.purpose, failure, arrival)
    if moves is not None:
        return carry_out(run, arrival, moves)
    return [finished(run, "error", error=ErrorInfo("no-answer", failure.message))]


def wait_before(failure: ModelFailed, *, tries: int) -> float:
    """Seconds until the next try: what the endpoint asks for, else twice as long each time."""
    if failure.retry_after is not None:
        return failure.retry_after
    doubled: float = _FIRST_WAIT * 2 ** min(tries - 1, 10)
    return min(doubled, _LONGEST_WAIT)
