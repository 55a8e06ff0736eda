"""The prices of operations on values in a template, charged before they are done, by the sizes of what they take and
of what they give. A result that would be too large raises OverflowError.
"""

import re
from collections import Counter
from collections.abc import ItemsView, Iterable, KeysView, ValuesView
from datetime import date, time, timedelta, tzinfo
from typing import Any

import msgspec

from cadre.spec.templates.template_work import TemplateWork

MAX_NUMBER_BITS = 4_096
"""Of a whole number that an operator takes or gives."""

MAX_TEXT_CHARACTERS = 16_000_000
"""Characters, or items, of what is put together from parts."""

MAX_WIDTH = 100_000
"""Characters that a text is padded to, and parts that a list is cut into."""

MAX_DEPTH = 100
"""Lists and objects in each other, in a value that becomes text, is compared or is kept."""

COPIED = 128
"""Characters that are copied for a unit."""

_LISTED = 4
"""List items that are copied for a unit."""

_ITEM = 6
"""Units for an item of a value that is gone through whole."""

_REVERSED = 32
"""Characters that are copied one by one for a unit."""

_FOUND = 2
"""Units for a part that a text is split into."""

_NESTED = 16
"""Characters within a list or object that are written or compared for a unit."""

_SCANNED = 4
"""Characters that are looked at one by one for a unit."""

COMPARED = 100
"""Characters that a search compares for a unit, at its worst."""

_LONG_SEARCH = 30_000
_LINEAR_SEARCH = 16
"""In longer texts the search takes a unit for so many characters, regardless of what it looks for."""

_COLLIDING = 8
"""Comparisons of keys with one hash for a unit."""

_FIELD_UNITS = 40
_MAX_DIGITS = 3

_FREE = 1 << 300
"""A number below it costs nothing beyond its place in a list: the look at it must not cost more than the charge."""

_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_SPACES = (
    _LINE_ENDS + "\t\x1f \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)

_CONVERSION = re.compile(r"%%|%(?:\([^()]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")
_FIELD = re.compile(r"\{[^{}]*\}")
_DIGITS = re.compile(r"\d+")

_LEAVES = (int, float, date, time, timedelta, tzinfo, range, type(None), msgspec.Struct)
_MANY = (list, tuple, KeysView, ValuesView, ItemsView)


def price_of_whole(work: TemplateWork, value: Any) -> None:
    """Charge all that is within a value, which becomes text, is compared or is copied. Raises TypeError for what has
    no text, such as a namespace."""
    kind = type(value)
    if kind is str:
        work.charge(len(value) // COPIED + 1)
        return
    if kind is bool or value is None or kind is float:
        work.charge(1)
        return
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise OverflowError(f"a value is nested more than {MAX_DEPTH} deep")
        below: list[Any] = []
        for one in level:
            if type(one) is int and -_FREE < one < _FREE:
                continue
            if isinstance(one, str):
                work.charge(len(one) // _NESTED)
            elif isinstance(one, dict):
                work.charge(2 * _ITEM * len(one))
                below += one
                below += one.values()
            elif isinstance(one, _MANY):
                work.charge(_ITEM * len(one))
                below += one
            elif isinstance(one, int):
                work.charge(one.bit_length() ** 2 // 100_000)
            elif isinstance(one, float):
                work.charge(_ITEM)
            elif not isinstance(one, _LEAVES) and not hasattr(one, "_fail_with_undefined_error"):
                raise TypeError(f"a value of the type {type(one).__name__} is no text")
        work.charge(_ITEM)
        level = below


def price_of_scan(work: TemplateWork, value: Any, units_per_character: float = 1 / _SCANNED) -> None:
    """Charge what is within a value, of which each character is looked at."""
    price_of_whole(work, value)
    size = len(value) if isinstance(value, str) else _characters(value)
    work.charge(int(size * units_per_character))


def price_of_items(work: TemplateWork, value: Any, each: int = 1) -> None:
    """Charge so much for each item of a value; a value without a length costs nothing."""
    if hasattr(value, "__len__") and not hasattr(value, "_fail_with_undefined_error"):
        work.charge(len(value) * each)


def price_of_comparison(work: TemplateWork, left: Any, right: Any) -> None:
    """Charge the comparison of two values."""
    if isinstance(left, str) and isinstance(right, str):
        work.charge(min(len(left), len(right)) // COPIED)
    elif isinstance(left, (dict, *_MANY)) and isinstance(right, (dict, *_MANY)):
        price_of_whole(work, left if len(left) <= len(right) else right)


def price_of_membership(work: TemplateWork, wanted: Any, within: Any) -> None:
    """Charge the look whether a value is within another one."""
    if isinstance(within, str):
        if isinstance(wanted, str):
            price_of_search(work, within, wanted)
        return
    price_of_key(work, wanted)
    if isinstance(within, dict | KeysView) or not hasattr(within, "__len__"):
        return
    if isinstance(wanted, str | int | float | type(None)):
        size = len(wanted) // COPIED if isinstance(wanted, str) else 0
        work.charge(len(within) * (1 + size))
    else:
        price_of_whole(work, within)


def price_of_key(work: TemplateWork, key: Any) -> None:
    """Charge the hash of a key."""
    if not isinstance(key, str | int | float):
        price_of_whole(work, key)


def price_of_hashes(work: TemplateWork, keys: Iterable[Any]) -> None:
    """Charge the making of a table with these keys: numbers can be chosen so that all of them have one hash, and each
    is then compared with all those before it."""
    together = Counter(hash(key) for key in keys if isinstance(key, int | float))
    work.charge(sum(count * count for count in together.values() if count > 1) // _COLLIDING)


def price_of_pairs(work: TemplateWork, pairs: Any) -> None:
    """Charge a dict that is made of a list of pairs, which was charged before."""
    if isinstance(pairs, list | tuple):
        price_of_hashes(work, (pair[0] for pair in pairs if isinstance(pair, list | tuple) and pair))


def price_of_search(work: TemplateWork, text: str, wanted: str, *, backwards: bool = False) -> None:
    """Charge the search for a text within another one."""
    size, width = len(text), len(wanted)
    if backwards:
        work.charge(1 + size * width // COMPARED)
    elif size > _LONG_SEARCH:
        work.charge(size // _LINEAR_SEARCH)
    else:
        work.charge(1 + size * min(width, COMPARED) // COMPARED)


def price_of_replacement(work: TemplateWork, text: str, old: str, new: str) -> None:
    """Charge the replacement of all occurrences."""
    price_of_search(work, text, old)
    found = text.count(old)
    price_of_text(work, len(text) + max(0, len(new) - len(old)) * found)
    work.charge(found)


def price_of_join(work: TemplateWork, separator: str, parts: Any) -> None:
    """Charge the joining of parts."""
    price_of_whole(work, parts)
    if hasattr(parts, "__len__"):
        work.charge(_ITEM * len(parts))
        price_of_text(work, _characters(parts) + len(separator) * len(parts))


def price_of_split(work: TemplateWork, text: str, separator: str | None, *, backwards: bool = False) -> None:
    """Charge the splitting of a text; without a separator, at white space."""
    if separator is None:
        work.charge(len(text) // _NESTED + _FOUND * sum(map(text.count, _SPACES)))
    elif separator:
        price_of_search(work, text, separator, backwards=backwards)
        work.charge(_FOUND * text.count(separator))


def price_of_lines(work: TemplateWork, text: str, each: int = _FOUND) -> None:
    """Charge the splitting of a text into lines, with so much for each."""
    work.charge(len(text) // _NESTED + each * (1 + sum(map(text.count, _LINE_ENDS))))


def price_of_text(work: TemplateWork, characters: int) -> None:
    """Charge a text that is made."""
    if characters > MAX_TEXT_CHARACTERS:
        raise OverflowError(f"the text would have more than {MAX_TEXT_CHARACTERS:,} characters or items")
    work.charge(characters // COPIED)


def price_of_width(work: TemplateWork, width: Any, times: int = 1) -> None:
    """Charge padding to a width, so many times."""
    size = len(width) if isinstance(width, str) else int(width)
    if size > MAX_WIDTH:
        raise OverflowError(f"a width is {MAX_WIDTH:,} at most")
    price_of_text(work, max(0, size) * times)


def price_of_format(work: TemplateWork, how: str, text: str, values: Any) -> None:
    """Charge the filling in of a format: `format` for that of `str.format`, `%` for the other one."""
    price_of_whole(work, values)
    price_of_scan(work, text, 4)
    fields = _fields(text) if how == "format" else _conversions(text)
    numbers = [number for field in fields for number in _DIGITS.findall(field)]
    if any(len(number) > _MAX_DIGITS for number in numbers):
        raise OverflowError(f"the numbers in a format have {_MAX_DIGITS} digits at most")
    widths, size = sum(map(int, numbers)), _characters(values)
    price_of_text(work, len(text) + widths + len(fields) * size)
    work.charge(len(fields) * (_FIELD_UNITS + size // _NESTED) + widths)


def _conversions(text: str) -> list[str]:
    found = list(_CONVERSION.finditer(text))
    for one in found:
        if "*" in one.groups() or text.startswith("(", one.end()):
            raise OverflowError("the widths and names in a format are written out")
    return ["".join(filter(None, one.groups())) for one in found if one[0] != "%%"]


def _fields(text: str) -> list[str]:
    plain = text.replace("{{", "").replace("}}", "")
    if set("{}") & set(_FIELD.sub("", plain)):
        raise OverflowError("the widths and names in a format are written out")
    return _FIELD.findall(plain)


def price_of_operands(work: TemplateWork, operator: str, left: Any, right: Any) -> None:
    """Charge an operation on two values."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if operator == "**":
            bits = bits * max(right, 1) if bits > 1 else bits
        elif operator == "*":
            bits += right.bit_length()
        if max(bits, left.bit_length(), right.bit_length()) > MAX_NUMBER_BITS:
            raise OverflowError(f"{operator}: a number has more than {MAX_NUMBER_BITS} bits")
        work.charge(1 + bits // 32)
    elif operator == "%" and isinstance(left, str):
        price_of_format(work, "%", left, right)
    elif operator == "*" and (isinstance(left, int) or isinstance(right, int)):
        many, times = (left, right) if isinstance(right, int) else (right, left)
        if hasattr(many, "__len__"):
            _price_of_copies(work, many, len(many) * max(0, times))
    elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
        _price_of_copies(work, left, len(left) + len(right))
    elif not isinstance(left, int | float) or not isinstance(right, int | float):
        price_of_whole(work, left)
        price_of_whole(work, right)


def price_of_slice(work: TemplateWork, taken: Any) -> None:
    """Charge a part that was taken of a value."""
    if hasattr(taken, "__len__"):
        work.charge(len(taken) // _REVERSED)
        _price_of_copies(work, taken, len(taken))


def _price_of_copies(work: TemplateWork, many: Any, size: int) -> None:
    price_of_text(work, size)
    if not isinstance(many, str | bytes | range):
        work.charge(size // _LISTED)


def _characters(value: Any) -> int:
    """Return roughly how long the text of a value may be, which was charged before."""
    if isinstance(value, str):
        return len(value) * 4
    if isinstance(value, dict):
        return sum(_characters(one) + 8 for pair in value.items() for one in pair)
    if isinstance(value, _MANY):
        return sum(_characters(one) + 8 for one in value)
    return value.bit_length() // 3 + 2 if isinstance(value, int) else 32
