"""Pieces of answers while they are being written."""

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
