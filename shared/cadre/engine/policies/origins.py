"""Find the origin of a value: exact matches, never the model's word for it.

A value is compared normalized (NFKC, case, white space, quotation marks, invisible characters, the scheme and last
slash of an address), as whole words: `www.a.com` does not stand in `www.a.com.evil.com`. What is paraphrased, encoded
or computed stands nowhere.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from cadre.journal.facts import HeardText, MetValues, ValuePlace
from cadre.protocol.cards import ALL_FIELDS, ToolCard
from cadre.protocol.policy import Policy, ValueOrigin

ORIGINS: tuple[ValueOrigin, ...] = (*("task", "listed", "trusted", "sole", "field", "named", "text", "nowhere"),)
"""From the most to the least trustworthy."""

ASKED: tuple[ValueOrigin, ...] = ("task",)
KNOWN: tuple[ValueOrigin, ...] = ("task", "listed", "trusted")
CLEAR: tuple[ValueOrigin, ...] = (*KNOWN, "sole")

_INVISIBLE = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF, 0xAD], None)
_QUOTES = str.maketrans({"‘": "'", "’": "'", "‚": "'", "`": "'", "´": "'", "“": '"', "”": '"', "„": '"'})
_SCHEME = re.compile(r"\b(?:https?|ftp)://")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?!\w)")
_JOINTS = frozenset(".-@/+&=%")
"""Characters that join words to one: a part of a word next to one of them is no whole word."""
_LEAST_TEXT = 3
"""Shorter texts stand in anything by chance."""
_LEAST_DIGITS = 3

EMAIL = re.compile(r"[\w.+'-]+@[\w-]+(?:\.[\w-]+)+")
IBAN = re.compile(r"\b[a-z]{2}\d{2}(?: ?[a-z0-9]{2,4}){3,8}\b")
LINK = re.compile(
    r"(?<![\w@.-])(?:(?:https?|ftp)://[^\s<>\"'()\[\]]+"
    r"|(?:www\.)[\w-]+(?:\.[\w-]+)+(?:[/?#][^\s<>\"'()\[\]]*)?"
    r"|[\w-]+(?:\.[\w-]+)*\.(?:com|net|org|io|info|biz|dev|app|ai|co|me|xyz|site|online|shop|top|ru|cn|de|uk|fr|eu|us|"
    r"ch|nl|it|es|pl|se|in|br|au|jp)(?:[/?#][^\s<>\"'()\[\]]*)?(?![\w@.-]*@))(?![\w@])",
    re.IGNORECASE,
)
_INDEX = re.compile(r"\[\d+\]")
_ENDS = ".,;:!?*_~…"


class FirstStood(NamedTuple):
    """The origin of a value."""

    origin: ValueOrigin
    place: ValuePlace | None = None
    via: str = ""
    """Its place in the run of the manager that passed it on."""


def normalized(text: str) -> str:
    """Return the text as it is compared."""
    text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE).translate(_QUOTES).casefold()
    return _SCHEME.sub("", " ".join(text.split()))


def as_value(value: Any) -> str | None:
    """Return a single value as it is compared; None for one that says nothing, such as true or null."""
    match value:
        case None | bool():
            return None
        case int() | float() | Decimal():
            return _number(value)
        case str():
            return normalized(value).rstrip("/").strip("<>\"' ") or None
        case _:
            return None


def _number(value: float | Decimal | str) -> str | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return format(number.normalize(), "f") if number.is_finite() else None


def numbers_in(text: str) -> set[str]:
    """Return the numbers of three digits and more in a text: `13` stands in `June 13` by chance."""
    found = (_number(one.replace(",", "")) for one in _NUMBER.findall(text))
    return {one for one in found if one is not None and sum(map(str.isdigit, one)) >= _LEAST_DIGITS}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the single values in a JSON value, each with its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from leaves(one, f"{path}[{index}]")
    else:
        yield path, value


def flat(*values: Any) -> list[Any]:
    """Return the single values in all of these."""
    return [one for value in values for _, one in leaves(value)]


def stands_in(value: str, text: str) -> int:
    """Return where the normalized value stands in a normalized text as a whole word; -1 where it does not."""
    at = text.find(value)
    while at >= 0:
        if _ends_before(text, at) and _ends_behind(text, at + len(value)):
            return at
        at = text.find(value, at + 1)
    return -1


def _ends_before(text: str, at: int) -> bool:
    if at == 0 or not _is_word(text[at]):
        return True
    if _is_word(text[at - 1]):
        return False
    return not (text[at - 1] in _JOINTS and at >= 2 and _is_word(text[at - 2]))


def _ends_behind(text: str, end: int) -> bool:
    if end >= len(text) or not _is_word(text[end - 1]):
        return True
    if _is_word(text[end]):
        return False
    joins = text[end] in _JOINTS or text[end] == ":"
    return not (joins and end + 1 < len(text) and _is_word(text[end + 1]))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def links_in(text: str) -> list[str]:
    """Return the web addresses in a text, also those without a scheme."""
    text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE)
    return list(dict.fromkeys(found[0].rstrip(_ENDS) for found in LINK.finditer(text)))


class Origins:
    """The origins of values in one run, for one agent's policies."""

    def __init__(self, facts: MetValues, tools: Mapping[str, ToolCard], policies: Sequence[Policy]) -> None:
        self._facts, self._tools = facts, tools
        self._listed = {
            one for policy in policies for value in flat(policy.known) if (one := as_value(value)) is not None
        }
        self._trusted = [(tool, fields) for policy in policies for tool, fields in policy.trusted.items()]

    def of(self, value: Any) -> FirstStood:
        """Return where a value first stood; of several values the least trustworthy."""
        found = [self._of_one(one) for one in flat(value)]
        return max(found, key=lambda one: ORIGINS.index(one.origin), default=FirstStood("task"))

    def are(self, origins: Sequence[ValueOrigin], values: Sequence[Any]) -> bool:
        """Return whether all of the values come from these origins."""
        return all(self._of_one(one).origin in origins for one in flat(*values))

    def sources(self) -> list[str]:
        """Return the names of the tools that vouch for something."""
        vouching = [name for name, card in self._tools.items() if card.action.trusted]
        vouching += [name for name in self._tools for tool, _ in self._trusted if fnmatchcase(name, tool)]
        return list(dict.fromkeys(vouching))

    def trusted_values(self) -> Iterator[tuple[str, ValuePlace]]:
        """Yield the values of fields that a tool vouches for."""
        for value, places in self._facts.fields.items():
            place = self._vouched(value, places)
            if place is not None:
                yield value, place

    def _of_one(self, value: Any) -> FirstStood:
        one = as_value(value)
        if one is None:
            return FirstStood("task")
        whole = self._of_text(one, is_number=not isinstance(value, str))
        addresses = EMAIL.findall(one) if isinstance(value, str) and whole.origin == "nowhere" else []
        if len(addresses) > 1 and not EMAIL.sub("", one).strip(" ,;"):
            return max(
                (self._of_text(each, is_number=False) for each in addresses),
                key=lambda each: ORIGINS.index(each.origin),
            )
        return whole

    def _of_text(self, one: str, *, is_number: bool) -> FirstStood:
        facts = self._facts
        if self._is_asked(one, is_number=is_number):
            return FirstStood("task")
        if one in self._listed or one in facts.listed:
            return FirstStood("listed")
        passed = facts.passed.get(one)
        places = facts.fields.get(one, [])
        vouched = self._vouched(one, places)
        if vouched is not None:
            return FirstStood("trusted", vouched)
        if passed is not None and passed.origin in CLEAR:
            return FirstStood(passed.origin, via=passed.place)
        if not is_number and (sole := self._sole(one)) is not None:
            return FirstStood("sole", sole)
        if places:
            return FirstStood("field", places[0])
        return self._in_texts(one)

    def _is_asked(self, one: str, *, is_number: bool) -> bool:
        facts = self._facts
        if one in facts.given:
            return True
        if is_number:
            return one in facts.numbers
        if len(one) < _LEAST_TEXT and one.isascii():
            return False
        return any(stands_in(one, text) >= 0 for text in facts.asked)

    def _vouched(self, value: str, places: Sequence[ValuePlace]) -> ValuePlace | None:
        """Return the first of the places whose tool vouches for it, unless the run itself had written the value."""
        for place in places:
            if self._is_vouched(place) and not any(
                one.before <= place.number and stands_in(value, one.text) >= 0 for one in self._facts.written
            ):
                return place
        return None

    def _is_vouched(self, place: ValuePlace) -> bool:
        card = self._tools.get(place.tool)
        path = field_of(place.path)
        named = [fields for tool, fields in self._trusted if fnmatchcase(place.tool, tool)]
        if card is not None and card.action.trusted:
            named.append(card.action.trusted)
        return any(_covers(field, path) for fields in named for field in fields)

    def _sole(self, one: str) -> ValuePlace | None:
        """Return where the value is the only address of its sort, in a text from a source that the task names."""
        sort = next((pattern for pattern in (EMAIL, IBAN, LINK) if pattern.fullmatch(one)), None)
        if sort is None:
            return None
        for number, heard in enumerate(self._facts.heard):
            at = stands_in(one, heard.text) if heard.named else -1
            if at >= 0 and {_address(found[0]) for found in sort.finditer(heard.text)} == {one}:
                return _place(heard, number, at)
        return None

    def _in_texts(self, one: str) -> FirstStood:
        first: FirstStood | None = None
        for number, heard in enumerate(self._facts.heard):
            if (at := stands_in(one, heard.text)) < 0:
                continue
            if heard.named:
                return FirstStood("named", _place(heard, number, at))
            first = first or FirstStood("text", _place(heard, number, at))
        return first or FirstStood("nowhere")


def field_of(path: str) -> str:
    """Return a path without the places in lists."""
    return _INDEX.sub("", path).lstrip(".")


def _address(found: str) -> str:
    return found.rstrip(_ENDS).rstrip("/")


def _place(heard: HeardText, number: int, at: int) -> ValuePlace:
    path = heard.paths[bisect_right(heard.starts, at) - 1] if heard.starts else ""
    return ValuePlace(heard.call, heard.tool, path, number)


def _covers(field: str, path: str) -> bool:
    """Return whether a vouched field is this one, or one that holds it. What wraps a whole result is left out."""
    field = field.replace("[]", "")
    if field == ALL_FIELDS:
        return True
    return any(one == field or one.startswith(f"{field}.") for one in (path, path.removeprefix("result.")))
