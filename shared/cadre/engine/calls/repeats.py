"""Calls that lead nowhere: the same call with the same outcome, again and again, asked of a tool or a member.

The first further one is refused with a word to the model; when that does not help either, the run ends.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from cadre.journal.run import Repeated, Run
from cadre.journal.steps import CallState
from cadre.protocol.messages import ErrorInfo

LOOP = "LoopDetected"

_REMEMBERED = 32


def note_outcome(run: Run, call: CallState) -> None:
    """Counts what a call came to; called when it has its observation."""
    key = _key(call.name, call.arguments)
    outcome = _digest(call.error.message if call.error is not None else call.observation)
    before = run.repeated.pop(key, None)
    times = before.times + 1 if before is not None and before.outcome == outcome else 1
    run.repeated[key] = Repeated(outcome=outcome, times=times)
    while len(run.repeated) > _REMEMBERED:
        del run.repeated[next(iter(run.repeated))]


def refusal_of(run: Run, name: str, arguments: dict[str, Any]) -> ErrorInfo | None:
    """Why this call is not made once more; None when it may be."""
    limit = run.spec.limits.repeats if run.spec is not None else 0
    if not limit or not run.repeated:
        return None
    known = run.repeated.get(_key(name, arguments))
    if known is None or known.times < limit:
        return None
    text = (
        f"{name!r} was called {known.times} times with these very arguments, and the result was the same each"
        " time. It is not called again. Try something else, or give your final answer with what you have."
    )
    return ErrorInfo(LOOP, text)


def is_stuck(run: Run, refused: int) -> ErrorInfo | None:
    """Why the run ends now that `refused` more calls were refused; None when it may go on."""
    limit = run.spec.limits.repeats if run.spec is not None else 0
    if not limit or not refused or run.refused_repeats + refused < limit:
        return None
    text = f"The run goes in circles: {run.refused_repeats + refused} repeated calls were refused."
    return ErrorInfo(LOOP, text)


def _key(name: str, arguments: dict[str, Any]) -> str:
    # To a member nothing and no additional arguments are the same.
    return _digest(
        [name, {key: value for key, value in arguments.items() if key != "additional_args" or value}]
    )


def _digest(value: Any) -> str:
    data = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(data, digest_size=12).hexdigest()
