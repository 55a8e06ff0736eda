"""Pieces of answers while they are being written."""

from __future__ import annotations

import msgspec


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a model's answer while it is being written. Not stored; may be lost."""

    run: str
    agent: str
    step: int
    attempt: int
    text: str
    seq: int
    """The place of the piece in the answer, from 1."""
    purpose: str = ""
    """What the model is asked for, as in `model.called`; "" from agents of earlier versions."""
