"""The filters, tests and methods that templates may use, each with its price.

This module loads the template engine: commands that evaluate nothing should not import it.
"""

import operator
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Any

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext
from jinja2.tests import TESTS
from jinja2.utils import Cycler
from markupsafe import Markup

from cadre.spec.templates import template_prices as prices
from cadre.spec.templates.template_work import TemplateWork

_MAX_DIGITS = 300
_MAX_INDENT = 100
_EACH_CALL = 40
"""Units for the call of a filter or test on an item."""

_TITLED = 4.0
_COUNTED = 1.5
_PADDED = 6
_PART = 20
_ATTRIBUTE = 8
"""Units for an attribute of an item."""

Price = Callable[..., None]


def _path(work: TemplateWork, value: Any, attribute: Any) -> None:
    """Charge the reading of an attribute of each item."""
    parts = attribute.count(".") + attribute.count(",") + 1 if isinstance(attribute, str) else 1
    prices.price_of_items(work, value, _ATTRIBUTE * parts)


def _whole(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    for one in (value, *args, *named.values()):
        prices.price_of_whole(work, one)


def _scanned(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    _whole(work, *args, **named) if args else None
    prices.price_of_scan(work, value)


def _titled(work: TemplateWork, value: Any) -> None:
    prices.price_of_scan(work, value, _TITLED)


def _counted(work: TemplateWork, value: Any) -> None:
    prices.price_of_scan(work, value, _COUNTED)


def _taken(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    """Look at no more than the first or last item, or at the length."""


def _listed(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    prices.price_of_items(work, value, 2)


def _each(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    prices.price_of_items(work, value, _EACH_CALL)
    if "attribute" in named or args:
        _path(work, value, named.get("attribute", args[0] if args else None))


def _ordered(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    """Compare the items, or what is read of them, with each other."""
    _path(work, value, named.get("attribute", next((one for one in args if isinstance(one, str)), None)))
    before = work.spent
    prices.price_of_whole(work, value)
    size = len(value) if hasattr(value, "__len__") else 1
    work.charge((work.spent - before + size * _EACH_CALL // 2) * max(1, size.bit_length() // 2))


def _unique(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    _ordered(work, value, *args, **named)
    if isinstance(value, list | tuple | range):
        prices.price_of_hashes(work, value)


def _summed(work: TemplateWork, value: Any, attribute: Any = None, start: Any = 0) -> None:
    _path(work, value, attribute)
    before = work.spent
    prices.price_of_whole(work, [value, start])
    if hasattr(start, "__len__"):
        work.charge((work.spent - before) * len(value))


def _joined(work: TemplateWork, value: Any, d: Any = "", attribute: Any = None) -> None:
    _path(work, value, attribute)
    prices.price_of_items(work, value, 4)
    _whole(work, d, d)
    prices.price_of_join(work, str(d), value)


def _replaced(work: TemplateWork, value: Any, old: Any, new: Any, count: Any = None) -> None:
    _whole(work, value, value, old, old, new, new)
    prices.price_of_replacement(work, str(value), str(old), str(new))


def _centered(work: TemplateWork, value: Any, width: Any = 80) -> None:
    _whole(work, value)
    prices.price_of_width(work, width)


def _indented(work: TemplateWork, value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> None:
    _whole(work, value, value)
    text = str(value)
    prices.price_of_lines(work, text, _PADDED)
    prices.price_of_width(work, width, text.count("\n") + 1)


def _formatted(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    prices.price_of_whole(work, value)
    prices.price_of_format(work, "%", str(value), [*args, *named.values()])


def _cut(work: TemplateWork, value: Any, parts: Any = 1, fill: Any = None) -> None:
    prices.price_of_items(work, value, _PART)
    prices.price_of_width(work, abs(parts))
    work.charge(abs(parts) * _PART)


def _rounded(work: TemplateWork, value: Any, precision: Any = 0, method: Any = "common") -> None:
    if abs(precision) > _MAX_DIGITS or (isinstance(value, int) and value.bit_length() > prices.MAX_NUMBER_BITS):
        raise OverflowError(f"round: write a precision of at most {_MAX_DIGITS} digits")


def _as_json(work: TemplateWork, value: Any, indent: Any = None) -> None:
    if indent is not None and (not isinstance(indent, int) or indent > _MAX_INDENT):
        raise OverflowError(f"tojson: write an indent of at most {_MAX_INDENT}")
    before = work.spent
    prices.price_of_scan(work, value)
    work.charge((work.spent - before) * (3 + (indent or 0) // 2))


def _trimmed(work: TemplateWork, value: Any, chars: Any = None) -> None:
    prices.price_of_whole(work, chars)
    prices.price_of_scan(work, value)
    if isinstance(value, str):
        work.charge(len(value) * max(1, len(chars or "")) // prices.COMPARED)


_FILTERS: dict[str, Price] = {
    **dict.fromkeys(("count", "default", "d", "first", "last", "length", "abs"), _taken),
    **dict.fromkeys(("list", "reverse", "items"), _listed),
    **dict.fromkeys(("map", "reject", "rejectattr", "select", "selectattr"), _each),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort"), _ordered),
    **dict.fromkeys(("capitalize", "filesizeformat", "float", "int", "lower", "string", "upper"), _scanned),
    **dict.fromkeys(("e", "escape", "urlencode"), _counted),
    **dict.fromkeys(("batch", "slice"), _cut),
    "center": _centered,
    "format": _formatted,
    "indent": _indented,
    "join": _joined,
    "replace": _replaced,
    "round": _rounded,
    "sum": _summed,
    "title": _titled,
    "tojson": _as_json,
    "trim": _trimmed,
    "truncate": _whole,
    "unique": _unique,
    "wordcount": _counted,
}

_FREE = "boolean defined even divisibleby false float integer iterable mapping none number odd sequence string"
_COMPARED = "== eq equalto != ne > gt greaterthan >= ge < lt lessthan <= le sameas"
_TESTS: dict[str, Price] = {
    **dict.fromkeys((*_FREE.split(), "true", "undefined"), _taken),
    **dict.fromkeys(_COMPARED.split(), prices.price_of_comparison),
    "in": prices.price_of_membership,
    "lower": _scanned,
    "upper": _scanned,
}


def _charged(function: Any, price: Price) -> Callable[..., Any]:
    """Return the filter or test, which charges its price before it does anything."""
    is_given_context = getattr(function, "jinja_pass_arg", None)
    is_given = is_given_context.name if is_given_context is not None else ""

    @pass_context
    def charged(context: Context, value: Any, *args: Any, **named: Any) -> Any:
        work: TemplateWork = context.work  # type: ignore[attr-defined]
        price(work, value, *args, **named)
        if is_given == "context":
            found = function(context, value, *args, **named)
        elif is_given == "eval_context":
            found = function(context.eval_ctx, value, *args, **named)
        elif is_given == "environment":
            found = function(context.environment, value, *args, **named)
        else:
            found = function(value, *args, **named)
        if isinstance(found, Markup):
            return str(found)  # its operators escape what they are given, and it has its own methods
        return list(found) if isinstance(found, Iterator) else found

    return charged


def allowed_filters() -> dict[str, Callable[..., Any]]:
    """Return the filters that a template may use, by name."""
    return {name: _charged(FILTERS[name], price) for name, price in _FILTERS.items()}


def allowed_tests() -> dict[str, Callable[..., Any]]:
    """Return the tests that a template may use, by name."""
    return {name: _charged(TESTS[name], price) for name, price in _TESTS.items()}


# --- methods


def _method_scan(work: TemplateWork, text: str, *args: Any) -> None:
    _whole(work, *args) if args else None
    work.charge(len(text) // 4)


def _stripped(work: TemplateWork, text: str, chars: Any = None) -> None:
    _trimmed(work, text, chars)


def _searched(work: TemplateWork, text: str, wanted: Any, *between: Any, backwards: bool = False) -> None:
    prices.price_of_search(work, text, wanted, backwards=backwards)
    work.charge(len(text) // prices.COPIED)


def _begun(work: TemplateWork, text: str, wanted: Any, *between: Any) -> None:
    prices.price_of_whole(work, wanted)


def _widened(work: TemplateWork, text: str, width: Any, fill: Any = " ") -> None:
    prices.price_of_width(work, width)
    prices.price_of_text(work, len(text))


def _expanded(work: TemplateWork, text: str, tabsize: Any = 8) -> None:
    prices.price_of_scan(work, text)
    prices.price_of_width(work, tabsize, text.count("\t"))


def _split(work: TemplateWork, text: str, sep: Any = None, maxsplit: Any = -1, *, backwards: bool = False) -> None:
    prices.price_of_split(work, text, sep, backwards=backwards)


def _lines(work: TemplateWork, text: str, keepends: Any = False) -> None:
    prices.price_of_lines(work, text)


def _filled(work: TemplateWork, text: str, *args: Any, **named: Any) -> None:
    prices.price_of_format(work, "format", text, [*args, *named.values()])


def _replaced_in(work: TemplateWork, text: str, old: Any, new: Any, count: Any = -1) -> None:
    prices.price_of_replacement(work, text, old, new)


def _found_in(work: TemplateWork, value: Any, wanted: Any, *between: Any) -> None:
    prices.price_of_whole(work, wanted)
    prices.price_of_membership(work, wanted, value)


def _keyed(work: TemplateWork, value: Any, key: Any, default: Any = None) -> None:
    prices.price_of_key(work, key)


def _moment(work: TemplateWork, value: Any, *args: Any, **named: Any) -> None:
    # The C library's padding makes of a format of time at most so many times its length.
    work.charge(100 + sum(256 * len(one) for one in (*args, *named.values()) if isinstance(one, str)))


_IS = "alnum alpha ascii decimal digit identifier lower numeric printable space title upper"
_TEXT: dict[str, Price] = {
    **dict.fromkeys(("capitalize", "casefold", "lower", "swapcase", "title", "upper"), _method_scan),
    **dict.fromkeys([f"is{what}" for what in _IS.split()], _method_scan),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), _stripped),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _widened),
    **dict.fromkeys(("count", "find", "index", "partition"), _searched),
    **dict.fromkeys(("rfind", "rindex", "rpartition"), partial(_searched, backwards=True)),
    **dict.fromkeys(("startswith", "endswith", "removeprefix", "removesuffix"), _begun),
    **dict.fromkeys(("format", "format_map"), _filled),
    "expandtabs": _expanded,
    "join": prices.price_of_join,
    "replace": _replaced_in,
    "rsplit": partial(_split, backwards=True),
    "split": _split,
    "splitlines": _lines,
}
_MOMENTS = (
    "astimezone ctime date dst isocalendar isoformat isoweekday replace strftime time timestamp timetuple toordinal"
    " total_seconds tzname utcoffset weekday"
)
_METHODS: list[tuple[type | tuple[type, ...], dict[str, Price]]] = [
    (str, _TEXT),
    (dict, {"get": _keyed, **dict.fromkeys(("items", "keys", "values"), _taken)}),
    ((list, tuple), dict.fromkeys(("count", "index"), _found_in)),
    ((date, datetime, time, timedelta), dict.fromkeys(_MOMENTS.split(), _moment)),
    ((int, float), dict.fromkeys(("bit_length", "is_integer"), _taken)),
    (LoopContext, {"cycle": _taken, "changed": _whole}),
    (Cycler, dict.fromkeys(("next", "reset"), _taken)),
]


def price_of_method(called: Any) -> Price | None:
    """Return the price of a method of a value; None for what a template may not call."""
    method = getattr(called, "__wrapped__", called)  # the sandbox has its own `str.format`
    owner = getattr(method, "__self__", None)
    for kinds, methods in _METHODS:
        if isinstance(owner, kinds):
            price = methods.get(getattr(method, "__name__", ""))
            return None if price is None else partial(_priced, price, owner)
    return None


def _priced(price: Price, owner: Any, work: TemplateWork, *args: Any, **named: Any) -> None:
    price(work, owner, *args, **named)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


@pass_context
def compared(context: Context, operands: list[Any], operators: tuple[str, ...]) -> Any:
    """Return the value of a comparison, or of a chain of them."""
    work: TemplateWork = context.work  # type: ignore[attr-defined]
    left, *others = operands
    found: Any = True
    for name, right in zip(operators, others, strict=True):
        if name in ("in", "notin"):
            prices.price_of_membership(work, left, right)
        else:
            prices.price_of_comparison(work, left, right)
        found = OPERATORS[name](left, right)
        if not found:
            break
        left = right
    return found
