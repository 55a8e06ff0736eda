"""Pieces of answers and hints of cancellations: both travel over core NATS, are not stored and may be lost."""

from __future__ import annotations

import msgspec

OF_ANSWER = "answer"
"""The purpose of deltas that are no text of the model but the beginning of the run's answer: what `final_answer` is
called with. `seq` counts them by themselves, and they are those of the answer only if no later attempt has others."""


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a model's answer while it is being written. Not stored; may be lost."""

    run: str
    agent: str
    step: int
    attempt: int
    text: str
    seq: int
    """The place of the piece in the answer, from 1."""
    purpose: str
    """The purpose of the model call, as in `model.called`, or `answer`."""


_AT = "@"


def cancel_hint(run: str, seq: int) -> str:
    """Return the hint that a cancellation of the run is at this sequence of its stream, for the run's model call."""
    return f"{run}{_AT}{seq}"


def read_cancel_hint(text: str) -> tuple[str, int] | None:
    """Return the run and the sequence; None for any other hint."""
    run, _, seq = text.partition(_AT)
    return (run, int(seq)) if seq.isdecimal() else None
