"""The work that a small language model is tried with, each task with the number that a right answer names."""

from itertools import combinations
from typing import NamedTuple

from prices import PLANTS


class Work(NamedTuple):
    """Tasks for one agent of the team."""

    agent: str
    forms: dict[str, tuple[str, str]]
    """How the model may write its calls or code: what to replace in the files, and by what; the first is shipped."""
    tasks: list[tuple[str, str]]


_CALLS = {form: ("calls: schema", f"calls: {form}") for form in ("schema", "native", "text")}
_CODE = {
    "structured": ("structured: true", "structured: true"),
    "code text": ("structured: true", "structured: false"),
}

_QUESTIONS = (
    ("What does one {plant} cost?", 0),
    ("How many of {plant} are in stock?", 1),
    ("Tell me the price of one {plant}, in euros.", 0),
    ("How many plants of {plant} do we have?", 1),
)
_LOOKUPS = [
    (question.format(plant=plant), str(PLANTS[plant][place])) for plant in PLANTS for question, place in _QUESTIONS
]
_SUMS = [
    (
        f"What do {2 + number} plants of {one} and {3 + number} plants of {other} cost together, in euros?",
        str((2 + number) * PLANTS[one][0] + (3 + number) * PLANTS[other][0]),
    )
    for number, (one, other) in enumerate([*combinations(PLANTS, 2)] * 2)
]

_BARE = [
    (f"What does one of the plants on shelf {shelf} cost, in euros?", str(price))
    for shelf, (price, _) in enumerate(PLANTS.values(), 1)
]

WORK = {
    "lookups": Work("clerk", _CALLS, _LOOKUPS),
    "sums": Work("reckoner", _CODE, _SUMS),
    "delegation": Work("desk", _CALLS, _LOOKUPS),
    "bare values": Work("shelver", _CALLS, _BARE),
}
"""By name: two lookups by tools, sums over tools' results in code, the lookups asked through a manager, and two lookups
in a row whose tools answer with bare values."""
