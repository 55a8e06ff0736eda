"""A tiny language for simulated code: it works, reads the clock, calls; what it knows hangs on all it has heard."""

import hashlib
from collections.abc import Collection, Generator
from typing import Any

import msgspec

from simulation.tools import UNLUCKY


class Variables(msgspec.Struct, frozen=True):
    """The state that code leaves to the next block."""

    heard: str = ""
    """Digest of every call so far and of what it came to, in order."""
    luck: float = 0.0
    """Had from nowhere: another attempt at the same block has another."""


class Work(msgspec.Struct, frozen=True, tag=True):
    seconds: float


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Calls at once, (name, arguments) each. `timed` reads the clock before; `strict` fails when one of them does."""

    calls: list[tuple[str, dict[str, Any]]]
    timed: bool = False
    strict: bool = False


class Luck(msgspec.Struct, frozen=True, tag=True):
    """Takes something that no replay will see again; no call of the same block may come behind it."""


class Die(msgspec.Struct, frozen=True, tag=True):
    """Takes the whole sandbox along, on behalf of a task."""

    of: str


class Fail(msgspec.Struct, frozen=True, tag=True):
    why: str


class Final(msgspec.Struct, frozen=True, tag=True):
    answer: str


Statement = Work | Ask | Luck | Die | Fail | Final


class Clock(msgspec.Struct, frozen=True):
    """The block needs the time."""


class Calls(msgspec.Struct, frozen=True):
    """The block needs the replies to these calls: a (value, error) for each."""

    made: list[tuple[str, dict[str, Any]]]


Need = Work | Luck | Die | Clock | Calls


class Ended(msgspec.Struct, frozen=True):
    variables: Variables
    output: str = ""
    final: bool = False
    error: tuple[str, str] | None = None
    """Its kind and its text."""


def as_code(block: list[Statement]) -> str:
    return msgspec.json.encode(block).decode()


def course(code: str, before: Variables, offered: Collection[str]) -> Generator[Need, Any, Ended]:
    """The block from its start to its end; it yields what it needs, and is sent that."""
    heard, luck = _digest(before.heard, before.luck), before.luck
    for statement in msgspec.json.decode(code, type=list[Statement]):
        match statement:
            case Ask():
                calls = [(name, _varied(arguments, heard)) for name, arguments in statement.calls]
                for name, _ in calls:
                    if name not in offered:
                        unknown = ("NameError", f"name '{name}' is not defined")
                        return Ended(Variables(heard, luck), error=unknown)
                at = (yield Clock()) if statement.timed else None
                replies = yield Calls(calls)
                heard = _digest(heard, at, calls, replies)
                failed = next((error for _, error in replies if error is not None), None)
                if statement.strict and failed is not None:
                    return Ended(Variables(heard, luck), error=("CallError", failed))
            case Luck():
                luck = yield statement
            case Fail(why=why):
                return Ended(Variables(heard, luck), error=("ValueError", why))
            case Final(answer=answer):
                return Ended(Variables(heard, luck), output=answer, final=True)
            case _:
                yield statement
    return Ended(Variables(heard, luck), output=heard)


def _varied(arguments: dict[str, Any], heard: str) -> dict[str, Any]:
    """Every number that code calls with shows what it has heard before; lucky ones stay lucky."""
    number = arguments.get("n")
    if not isinstance(number, int):
        return arguments
    return {**arguments, "n": number + UNLUCKY * (int(heard[:4], 16) % 1000)}


def _digest(*what: Any) -> str:
    return hashlib.blake2b(msgspec.json.encode(what), digest_size=8).hexdigest()
