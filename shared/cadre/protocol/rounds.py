"""Calls that go on in rounds: each but the last leaves the call unfinished."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Unfinished(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that goes on later: nobody works at it until a person has answered, or until its pause is over."""

    state: dict[str, Any]
    """What whoever goes on with it needs to know."""
    seconds: float = 0.0
    """The pause; none with a question."""
    question: str = ""
    schema: dict[str, Any] = {}
    """The JSON Schema of the answer to the question, an object."""
    may_repeat: bool = False
    """Whether going on with it twice does no more harm than once."""


class PersonsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person has said to the question of a call."""

    action: Literal["accept", "decline"]
    content: dict[str, Any] = {}


class Resumption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a call goes on that was unfinished."""

    round: int
    """From 1."""
    state: dict[str, Any]
    answer: PersonsAnswer | None = None
    may_repeat: bool = False


def round_id(call: str, number: int) -> str:
    """Id of the message that has a call gone on with for the nth time; of 0, which begins it, that of the call."""
    return f"{call}~{number}" if number else call


def call_of_round(message: str) -> str:
    """The call of a round."""
    return message.partition("~")[0]
