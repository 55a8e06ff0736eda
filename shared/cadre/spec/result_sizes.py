"""How large a result of an expression may be: known before it is made, whatever values it is made of."""

import re
from typing import Any

MAX_NUMBER_BITS = 4_096
"""Of a whole number that an operator gives."""

MAX_SEQUENCE_ITEMS = 1_000_000
"""Characters or items of what a repetition gives, or a format or filter pads to."""

MAX_TEXT_CHARACTERS = 16_000_000
"""Characters, or items, of what is put together from parts."""

_WIDE = re.compile(r":[^}]*(\{|\d{6,})")
"""The same in the form of `str.format`."""

_PADDED = re.compile(r"%[^%a-zA-Z]*(\*|\d{6,})")
"""A conversion of a format with a width or precision of six digits, or one that a value gives."""


def check_method(name: str, text: str, *args: Any) -> None:
    """Raises OverflowError for a method of a text whose result would be too long."""
    if name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
        for width in args:
            check_length(name, width if isinstance(width, int) else 0, MAX_SEQUENCE_ITEMS)
    elif name == "replace" and len(args) > 1:
        old, new = str(args[0]), str(args[1])
        check_length(name, len(text) + (len(new) - len(old)) * text.count(old))
    elif name == "join" and isinstance(args[0], list | tuple):
        check_length(
            name, sum(len(one) for one in args[0] if isinstance(one, str)) + len(text) * len(args[0])
        )
    elif name in ("format", "format_map") and (_PADDED.search(text) or _WIDE.search(text)):
        raise OverflowError("widths of a format are written out, with five digits at most")


def check_length(what: str, length: int, most: int = MAX_TEXT_CHARACTERS) -> None:
    """Raises OverflowError for a text or list that would be too long."""
    if length > most:
        raise OverflowError(f"{what}: the result has more than {most:,} characters or items")


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Raises OverflowError for an operation whose result would be too large."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if operator == "**":
            bits = bits * max(right, 1) if bits > 1 else bits
        elif operator == "*":
            bits += right.bit_length()
        if bits > MAX_NUMBER_BITS:
            raise OverflowError(f"{operator}: the result has more than {MAX_NUMBER_BITS} bits")
    elif operator == "*":
        many, times = (left, right) if isinstance(right, int) else (right, left)
        if isinstance(times, int) and hasattr(many, "__len__"):
            check_length("*", len(many) * times, MAX_SEQUENCE_ITEMS)
    elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
        check_length("+", len(left) + len(right))
    elif operator == "%" and isinstance(left, str) and _PADDED.search(left):
        raise OverflowError("%: widths of a format are written out, with five digits at most")


def checked_width(width: Any) -> Any:
    """The width. Raises OverflowError for one that is too large."""
    if (len(width) if isinstance(width, str) else int(width)) > MAX_SEQUENCE_ITEMS:
        raise OverflowError(f"a width is {MAX_SEQUENCE_ITEMS:,} at most")
    return width
