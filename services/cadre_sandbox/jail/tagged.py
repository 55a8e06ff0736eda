"""Write Python values that JSON lacks as tagged JSON, and read them back: numbers, durations, other keys. Pure."""

import datetime
import fractions
import math
import re
from collections.abc import Callable
from typing import Any

from cadre_sandbox.wire.values import (
    TaggedValue,
    Value,
)

_MAX_PLAIN_BITS = 1_000
"""Bits of an integer that every reader of JSON takes."""

_DURATION = re.compile(r"(-?)P(\d+)DT(\d+)\.(\d+)S")


def integer(number: int) -> Value:
    """The integer; one that readers of JSON refuse as its digits. Raises ValueError beyond 4,000 of them."""
    if number.bit_length() <= _MAX_PLAIN_BITS:
        return number
    return TaggedValue("int", _digits(number))


def real(number: float) -> Value:
    """The number; NaN and infinities by their names."""
    return number if math.isfinite(number) else TaggedValue("float", str(number))


def scalar(item: object) -> TaggedValue | None:
    """A complex number, a fraction or a duration as its text; None for anything else. Raises ValueError for a fraction
    of more than 4,000 digits."""
    if isinstance(item, complex):
        return TaggedValue("complex", str(complex(item)).strip("()"))
    if isinstance(item, fractions.Fraction):
        return TaggedValue("fraction", f"{_digits(item.numerator)}/{_digits(item.denominator)}")
    if isinstance(item, datetime.timedelta):
        if getattr(item, "nanoseconds", 0):  # a Timedelta of pandas
            raise ValueError("has durations below a microsecond; pass them as numbers")
        size = abs(item)
        text = f"P{size.days}DT{size.seconds}.{size.microseconds:06}S"
        return TaggedValue("timedelta", f"-{text}" if item.days < 0 else text)
    return None


def _digits(number: int) -> str:
    if number.bit_length() > 13_000:
        raise ValueError("has more than 4,000 digits; pass its text, in parts")
    return str(number)


def read(value: TaggedValue, inner: Callable[[Value], Any]) -> Any:
    """The object that the value stands for; `inner` reads what is in it. Raises ValueError or TypeError for content
    that no code has written."""
    content: Any = value.content
    match value.form:
        case "tuple":
            return tuple(map(inner, content))
        case "frozenset":
            return frozenset(map(inner, content))
        case "dict":
            return {inner(key): inner(item) for key, item in content}
        case "timedelta":
            return _duration(content)
    return _NUMBERS[value.form](content)


_NUMBERS: dict[str, Callable[[str], object]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "fraction": fractions.Fraction,
}


def _duration(text: str) -> datetime.timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"no duration: {text}")
    size = datetime.timedelta(days=int(found[2]), seconds=int(found[3]), microseconds=int(found[4]))
    return -size if found[1] else size
