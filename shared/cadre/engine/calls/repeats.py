"""Detect fruitless repetition: the same call with the same outcome, or the same answer with the same error.

The first further call is refused with a word to the model; when that does not help either, the run ends. A model that
reads an error and gives the very answer that it was about has had that word.
"""

import functools
import hashlib
import re
from typing import Any

import msgspec

from cadre.engine.kind import account_of, kind_of
from cadre.journal.run import ActionStep, CallState, Repeated, Run
from cadre.protocol.messages import ErrorInfo

_REMEMBERED = 32


def note_outcome(run: Run, call: CallState) -> None:
    """Count what a call came to; called when it has its observation."""
    if _waits(call.name):
        run.repeated.clear()
        return
    key = _key(call.name, call.arguments)
    outcome = _digest(call.error.message if call.error is not None else call.observation)
    before = run.repeated.pop(key, None)
    times = 1
    if before is not None and before.outcome == outcome:
        times = before.times + int(before.step != run.step)
    run.repeated[key] = Repeated(outcome=outcome, times=times, step=run.step)
    while len(run.repeated) > _REMEMBERED:
        del run.repeated[next(iter(run.repeated))]


def refusal_of(run: Run, name: str, arguments: dict[str, Any]) -> ErrorInfo | None:
    """Return why this call is not made once more; None when it may be."""
    limit = run.spec.limits.repeats if run.spec is not None else 0
    if not limit or not run.repeated:
        return None
    known = run.repeated.get(_key(name, arguments))
    if known is None or known.times < limit or known.step == run.step:
        return None
    text = (
        f"{name!r} was called {known.times} times with these very arguments, and the result was the same each"
        f" time. It is not called again.{_how_to_wait(run)} Try something else, or give your final answer with what you"
        " have."
    )
    return ErrorInfo("loop", text)


def _how_to_wait(run: Run) -> str:
    """The tools and members by which the run can wait for a change, as a sentence; "" where it has none."""
    names = [repr(name) for name in (*run.tools, *run.members) if _waits(name)]
    if not names:
        return ""
    return f" To wait for a change, call {' or '.join(names)} first; then it may be called again."


@functools.lru_cache(maxsize=1024)
def _waits(name: str) -> bool:
    """Return whether a tool or member waits, by the words of its name: `wait`, `wait_for_payment`."""
    return not {"wait", "waits", "sleep"}.isdisjoint(re.split(r"[\W_]+", name.casefold()))


def is_stuck(run: Run, refused: int) -> ErrorInfo | None:
    """Return why the run ends now that `refused` more calls were refused, at least one; None when it may go on."""
    limit = run.spec.limits.repeats if run.spec is not None else 0
    if not limit or run.refused_repeats + refused < limit:
        return None
    text = f"The run goes in circles: {run.refused_repeats + refused} repeated calls were refused."
    return ErrorInfo("loop", text)


def refused_alike(run: Run, name: str, arguments: dict[str, Any], error: ErrorInfo) -> ErrorInfo | None:
    """Return why a call that cannot be made is not judged once more; None when it may be."""
    limit = _most_mistakes(run)
    if not limit:
        return None
    calls = [call for step in run.steps if isinstance(step, ActionStep) for call in step.calls]
    alike = [call for call in calls if (call.name, call.arguments, call.error) == (name, arguments, error)]
    if len(alike) < limit:
        return None
    text = f"{name!r} was refused {len(alike)} times with these very arguments: {error.message}"
    return ErrorInfo("loop", text)


def is_failing_alike(run: Run, error: ErrorInfo) -> ErrorInfo | None:
    """Return why the run ends with the step in work, which ends with this error; None when it may go on."""
    limit = _most_mistakes(run)
    action = action_in(run.current) if run.current is not None else ""
    before = run.steps[-(limit - 1) :] if limit > 1 else []
    alike = [
        step for step in before if isinstance(step, ActionStep) and (action_in(step), step.error) == (action, error)
    ]
    if not limit or len(alike) < limit - 1:
        return None
    text = f"The run goes in circles: {limit} steps in a row had the same answer and the same error: {error.message}"
    return ErrorInfo("loop", text)


def action_in(step: ActionStep) -> str:
    """Return what a step did, without the model's words around it; its answer if nothing was made of that."""
    account = account_of(step)
    return account.written if account is not None else step.content


def _most_mistakes(run: Run) -> int:
    """Return how often the same mistake may be made; 0 is no bound."""
    return run.spec.limits.repeats if run.spec is not None and kind_of(run).guided else 0


def _key(name: str, arguments: dict[str, Any]) -> str:
    # To a member nothing and no additional arguments are the same.
    return _digest([name, {key: value for key, value in arguments.items() if key != "additional_args" or value}])


def _digest(value: Any) -> str:
    data = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(data, digest_size=12).hexdigest()
