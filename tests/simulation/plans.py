"""The answers of the models of a seed: a plan per run."""

import re
from typing import Any, NamedTuple

import msgspec

from cadre.journal.events import RequestedCall

_PLAN = re.compile(r"\[plan (\d+)\]")
_OWN = "Your step is this, and no other:"


class Plan(NamedTuple):
    """The answers of one run's model, step by step; then its final answer."""

    number: int
    steps: list[list[RequestedCall]]
    deadly: int | None = None
    """The step at which asking the model kills the worker."""
    defect: int | None = None
    """The step at which asking the model raises what nothing should."""
    nonsense: int | None = None
    """The step at which the model says something without a call."""
    stubborn: bool = False
    """The model repeats its first step for ever."""
    blocks: tuple[str, ...] = ()
    """The same steps as code, for an agent that writes code."""
    hands: tuple[int, ...] = ()
    """The plan that a workflow hands on to a member, and those that are handed on from there."""

    @property
    def task(self) -> str:
        hands = "".join(f" Leave [hand {hand}] to others." for hand in self.hands)
        return f"Work on [plan {self.number}].{hands}"

    @property
    def answer(self) -> str:
        return f"answer of plan {self.number}"


def plan_number(text: str) -> int | None:
    """Return the number of the plan that a task names; a step of a plan reads the whole task before its own."""
    found = _PLAN.search(text.rpartition(_OWN)[2])
    return int(found[1]) if found else None


def call_of(name: str, **arguments: Any) -> RequestedCall:
    return RequestedCall(name, msgspec.json.encode(arguments).decode())
