"""The types that tools take and return, each with an example: the table of docs/tools.md, which a test tries."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence  # noqa: F401 - hints are texts
from typing import (  # noqa: F401
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import msgspec
import pydantic
from pydantic import Field

T = TypeVar("T")


class Address(pydantic.BaseModel):
    """A pydantic model: aliases, nested models, defaults."""

    model_config = pydantic.ConfigDict(populate_by_name=True)
    street: str = Field(alias="Street", title="The street", description="With its number.")
    zip: int = Field(default=3000, ge=1000, le=9999)


class Person(pydantic.BaseModel):
    name: str
    homes: list[Address] = []
    friends: list[Person] = []
    born: datetime.date | None = None


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Numbers(pydantic.RootModel[list[int]]):
    pass


@pydantic.dataclasses.dataclass
class Parcel:
    to: Address
    grams: Annotated[int, Field(gt=0)] = 100


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Visit:
    at: Point
    of: Person


class Row(TypedDict):
    a: int
    b: NotRequired[Annotated[str, Field(max_length=3)]]


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


class Order(msgspec.Struct, rename="camel"):
    order_id: int
    to: Address


class Cell(NamedTuple):
    row: int
    column: str = "A"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 1


class Size(enum.StrEnum):
    SMALL = "s"
    LARGE = "l"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


UserId = NewType("UserId", int)


class Example(NamedTuple):
    """A row: a hint, a value of it in JSON, and the same in Python."""

    group: str
    hint: str
    json: Any
    python: Any

    @property
    def type(self) -> Any:
        """Return the hint itself."""
        return eval(self.hint, globals())


_SIMPLE, _TEXTS, _CHOICES = "simple values", "texts with a form", "choices"
_MANY, _OBJECTS, _UNIONS = "many values", "objects", "unions"

_STREET = {"Street": "Elm 1", "zip": 3001}
_ADDRESS = Address(Street="Elm 1", zip=3001)

EXAMPLES = [
    Example(_SIMPLE, "str", "a", "a"),
    Example(_SIMPLE, "int", 5, 5),
    Example(_SIMPLE, "float", 2.5, 2.5),
    Example(_SIMPLE, "bool", True, True),
    Example(_SIMPLE, "None", None, None),
    Example(_SIMPLE, "Any", {"a": [1, None]}, {"a": [1, None]}),
    Example(_SIMPLE, "object", "x", "x"),
    Example(_SIMPLE, "Annotated[int, Field(ge=1, le=9, description='How many.')]", 3, 3),
    Example(_SIMPLE, "Annotated[str, msgspec.Meta(min_length=2)]", "ab", "ab"),
    Example(_SIMPLE, "UserId", 7, 7),
    Example(
        _TEXTS,
        "datetime.datetime",
        "2026-01-02T03:04:05Z",
        datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    ),
    Example(_TEXTS, "datetime.date", "2026-01-02", datetime.date(2026, 1, 2)),
    Example(_TEXTS, "datetime.time", "03:04:05", datetime.time(3, 4, 5)),
    Example(_TEXTS, "datetime.timedelta", "PT5S", datetime.timedelta(seconds=5)),
    Example(_TEXTS, "decimal.Decimal", "1.10", decimal.Decimal("1.10")),
    Example(_TEXTS, "uuid.UUID", "00000000-0000-0000-0000-000000000005", uuid.UUID(int=5)),
    Example(_TEXTS, "pathlib.Path", "a/b.txt", pathlib.Path("a/b.txt")),
    Example(_TEXTS, "pydantic.AnyUrl", "https://example.com/a", pydantic.AnyUrl("https://example.com/a")),
    Example(_CHOICES, "Literal['wide', 'deep', 3]", "deep", "deep"),
    Example(_CHOICES, "Colour", "blue", Colour.BLUE),
    Example(_CHOICES, "Level", 2, Level.LOW),
    Example(_CHOICES, "Size", "l", Size.LARGE),
    Example(_CHOICES, "Rights", 3, Rights.READ | Rights.WRITE),
    Example(_MANY, "list[int]", [1, 2], [1, 2]),
    Example(_MANY, "list", [1, "a"], [1, "a"]),
    Example(_MANY, "tuple[int, str]", [1, "a"], (1, "a")),
    Example(_MANY, "tuple[int, ...]", [1, 2], (1, 2)),
    Example(_MANY, "set[str]", ["a"], {"a"}),
    Example(_MANY, "frozenset[int]", [1], frozenset({1})),
    Example(_MANY, "Sequence[int]", [1], [1]),
    Example(_MANY, "Iterable[int]", [1, 2], [1, 2]),
    Example(_MANY, "Iterator[Address]", [_STREET], [_ADDRESS]),
    Example(_MANY, "Cell", [1, "B"], Cell(1, "B")),
    Example(_OBJECTS, "dict", {"a": 1}, {"a": 1}),
    Example(_OBJECTS, "dict[str, list[int]]", {"a": [1]}, {"a": [1]}),
    Example(_OBJECTS, "dict[int, Colour]", {"7": "red"}, {7: Colour.RED}),
    Example(_OBJECTS, "Mapping[str, int]", {"a": 1}, {"a": 1}),
    Example(_OBJECTS, "Address", _STREET, _ADDRESS),
    Example(_OBJECTS, "list[Address]", [_STREET], [_ADDRESS]),
    Example(
        _OBJECTS,
        "Person",
        {
            "name": "Ann",
            "homes": [_STREET],
            "friends": [{"name": "Bo", "homes": [], "friends": [], "born": None}],
            "born": "2000-01-02",
        },
        Person(name="Ann", homes=[_ADDRESS], friends=[Person(name="Bo")], born=datetime.date(2000, 1, 2)),
    ),
    Example(_OBJECTS, "Box[Address]", {"item": _STREET}, Box[Address](item=_ADDRESS)),
    Example(_OBJECTS, "Numbers", [1, 2], Numbers([1, 2])),
    Example(_OBJECTS, "Parcel", {"to": _STREET, "grams": 5}, Parcel(_ADDRESS, 5)),
    Example(_OBJECTS, "Point", {"x": 1, "y": 0}, Point(1)),
    Example(_OBJECTS, "Node", {"value": 1, "children": [{"value": 2, "children": []}]}, Node(1, [Node(2)])),
    Example(
        _OBJECTS,
        "Visit",
        {"at": {"x": 1, "y": 2}, "of": {"name": "Ann", "homes": [], "friends": [], "born": None}},
        Visit(Point(1, 2), Person(name="Ann")),
    ),
    Example(_OBJECTS, "Row", {"a": 1, "b": "xyz"}, {"a": 1, "b": "xyz"}),
    Example(_OBJECTS, "Tree", {"value": 1, "children": [{"value": 2, "children": []}]}, Tree(1, [Tree(2)])),
    Example(_OBJECTS, "Order", {"orderId": 1, "to": _STREET}, Order(1, _ADDRESS)),
    Example(_UNIONS, "str | None", None, None),
    Example(_UNIONS, "Optional[Address]", _STREET, _ADDRESS),
    Example(_UNIONS, "Union[int, str, list[int]]", [1], [1]),
    Example(_UNIONS, "Address | Point", {"x": 1, "y": 2}, Point(1, 2)),
    Example(_UNIONS, "datetime.date | Literal['never']", "never", "never"),
]

RESULTS = [
    Example("", "a generator, `map`, `filter`, any iterator", [1, 2], lambda: (n for n in (1, 2))),
    Example("", "`range`, `deque`, views of a dict, `array`", [0, 1], lambda: range(2)),
    Example("", "a `deque`", [1], lambda: collections.deque([1])),
    Example("", "an `array`", [1, 2], lambda: array.array("i", [1, 2])),
    Example("", "a model within any other value", {"a": [_STREET]}, lambda: {"a": [_ADDRESS]}),
    Example("", "anything else: its `str()`", "1/2", lambda: fractions.Fraction(1, 2)),
]


def table() -> str:
    """Return the rows of docs/tools.md."""
    rows = ["| | type hint | in JSON, for example |", "|---|---|---|"]
    group = ""
    for one in EXAMPLES:
        hint = one.hint.replace("|", "\\|").replace("'", '"')
        shown = msgspec.json.encode(one.json).decode()
        rows.append(f"| {one.group if one.group != group else ''} | `{hint}` | `{shown}` |")
        group = one.group
    return "\n".join(rows)
