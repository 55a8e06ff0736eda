"""The misfit of a value and its type, as data. No other module reads the sentences in which msgspec reports it."""

import re
from typing import NamedTuple

import msgspec

_SENTENCE = re.compile(
    r"(?P<problem>Object (?P<kind>contains unknown|missing required) field `(?P<key>.*?)`|.*?)"
    r"(?: - at `(?P<place>[^`]*)`)?",
    re.DOTALL,
)


class Misfit(NamedTuple):
    """The place at which a value does not fit its type, and the reason."""

    place: str
    """`spec.limits`; "" for the value itself."""
    problem: str
    unknown: str = ""
    """The key that does not exist there."""
    missing: str = ""
    """The key that is missing there."""

    @property
    def lower(self) -> str:
        """Return the problem as it goes on after a colon."""
        return self.problem[:1].lower() + self.problem[1:]

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem


def misfit_of(error: msgspec.ValidationError) -> Misfit:
    """Return what the error says."""
    found = _SENTENCE.fullmatch(str(error))
    assert found is not None  # each part may be empty
    place = (found["place"] or "").removeprefix("$").lstrip(".")
    key, is_unknown = found["key"] or "", found["kind"] == "contains unknown"
    return Misfit(place, found["problem"], key if is_unknown else "", "" if is_unknown else key)
