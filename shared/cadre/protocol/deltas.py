"""Pieces of answers and hints of cancellations: both travel over core NATS, are not stored and may be lost."""

from __future__ import annotations

from typing import Any

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


class StreamChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of the stream that answers a program's model request, as its endpoint has sent it. Not stored; may be
    lost: what a program was not given as a stream it is given as a whole, from the journal."""

    run: str
    step: int
    attempt: int
    seq: int
    """The place of the piece in the stream, from 1."""
    data: dict[str, Any] | None = None
    """None behind the last piece."""


_AT = "@"


def cancel_hint(run: str, seq: int) -> str:
    """Return the hint that a cancellation of the run is at this sequence of its stream, for the run's model call."""
    return f"{run}{_AT}{seq}"


def read_cancel_hint(text: str) -> tuple[str, int] | None:
    """Return the run and the sequence; None for any other hint."""
    run, _, seq = text.partition(_AT)
    return (run, int(seq)) if seq.isdecimal() else None
