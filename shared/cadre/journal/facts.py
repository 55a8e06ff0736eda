"""Keep what a run knows of the values that it has met, for the rules of its policies: only runs with policies do."""

import msgspec

from cadre.protocol.policy import PassedValue


class ValuePlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a value in the result of a call."""

    call: str
    tool: str
    path: str = ""
    """From the result: `[3].subject`; "" for the result itself."""
    number: int = 0
    """Number of the result among those of the run, from 0."""

    def __str__(self) -> str:
        dot = "" if not self.path or self.path.startswith("[") else "."
        return f"{self.tool}{dot}{self.path}"


class HeardText(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The texts of one result, normalized, one behind the other."""

    call: str
    tool: str
    text: str
    starts: list[int]
    """The offsets at which the text of each field begins."""
    paths: list[str]
    """The path of each field."""
    named: bool = False
    """The task names what was asked for."""


class WrittenText(msgspec.Struct, frozen=True):
    """A text that a call of the run has written outside, normalized."""

    before: int
    """The number of results until then."""
    text: str


class CountedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that was made, or waits for a person."""

    tool: str
    does: str = ""
    amount: float = 0.0
    at: float = 0.0
    """The time of the decision, in Unix seconds."""


class MetValues(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of it."""

    asked: list[str] = []
    """The texts that people wrote, normalized."""
    given: set[str] = set()
    """Whole values that people gave, normalized."""
    listed: set[str] = set()
    """Whole values that stand in the steps of the agent's file, normalized."""
    numbers: set[str] = set()
    """Numbers of three digits and more in what they wrote."""
    passed: dict[str, PassedValue] = {}
    """Values whose origin a manager knows."""
    fields: dict[str, list[ValuePlace]] = {}
    """By value, the fields of results that were exactly that: the first of each field."""
    heard: list[HeardText] = []
    written: list[WrittenText] = []
    calls: dict[str, CountedCall] = {}
    """Calls that count, by id."""
    plan: list[str] | None = None
    """Tools that were planned before anything was read; None: there is no plan yet."""
    may_plan: bool = True
    """Nothing that a stranger may have written was read in this run."""
    has_read: bool = False
    """Something was, in an earlier turn or from memory perhaps."""
