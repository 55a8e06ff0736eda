"""Jinja2's sandbox with bounds: no expression takes more time or memory than there is, whatever values it meets."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_NUMBER_BITS = 4_096
"""Of a whole number that an operator gives."""

MAX_SEQUENCE_ITEMS = 1_000_000
"""Characters or items of what a repetition gives, or a format or filter pads to."""

_PADDED = re.compile(r"%[^%a-zA-Z]*(\*|\d{6,})")
"""A conversion of a format with a width or precision of six digits, or one that a value gives."""


@cache
def bounded_environment_class() -> "type[ImmutableSandboxedEnvironment]":
    """The class of environments; it loads the template engine, which commands that evaluate nothing should not."""
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class BoundedEnvironment(ImmutableSandboxedEnvironment):
        """An operator whose result would be too large raises OverflowError."""

        intercepted_binops = frozenset({"**", "*", "%"})

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            center, indent = self.filters["center"], self.filters["indent"]
            self.filters["center"] = lambda value, width=80: center(value, _checked_width(width))
            self.filters["indent"] = lambda s, width=4, *rest, **named: indent(
                s, _checked_width(width), *rest, **named
            )

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            check_operands(operator, left, right)
            return super().call_binop(context, operator, left, right)

    return BoundedEnvironment


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
        if isinstance(times, int) and hasattr(many, "__len__") and len(many) * times > MAX_SEQUENCE_ITEMS:
            raise OverflowError(f"*: the result has more than {MAX_SEQUENCE_ITEMS:,} characters or items")
    elif operator == "%" and isinstance(left, str) and _PADDED.search(left):
        raise OverflowError("%: widths of a format are written out, with five digits at most")


def _checked_width(width: Any) -> Any:
    if (len(width) if isinstance(width, str) else int(width)) > MAX_SEQUENCE_ITEMS:
        raise OverflowError(f"a width is {MAX_SEQUENCE_ITEMS:,} at most")
    return width
