"""`@tool`: what a model is shown, what it may pass, and what is refused before any model sees it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, TypedDict

import jsonschema_rs
import msgspec
import pytest

from cadre.prompting.tool_text import signature_of
from cadre.tool import InvalidArguments, Tool, ToolContext, tool
from harness.texts import holds


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


class Options(TypedDict, total=False):
    title: str


class NotJson:
    """No type that JSON knows."""


@tool
def search(query: str, limit: int = 5) -> list[str]:
    """Searches the library.

    Looks at titles only.

    Args:
        query: Words to look for,
            all of them.
        limit: How many at most.

    Note:
        Slow on Mondays.

    Returns:
        Titles, best first.

    Raises:
        OSError: The library is closed.
    """
    return [query] * limit


# --- what the model is shown


def test_schema_and_description_come_from_the_function() -> None:
    assert search.card.name == "search"
    assert search.card.description == (
        "Searches the library.\n\nLooks at titles only.\n\nNote: Slow on Mondays.\n\nReturns: Titles, best first."
    )
    assert search.card.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to look for, all of them."},
            "limit": {"type": "integer", "description": "How many at most.", "default": 5},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert search.card.output_schema == {"type": "array", "items": {"type": "string"}}


def test_the_decorated_function_is_called_as_before() -> None:
    assert search("a", limit=2) == ["a", "a"]
    assert search.__name__ == "search"
    assert search.__doc__ is not None


def test_numpy_and_sphinx_docstrings_are_read() -> None:
    @tool
    def numpy_style(a: int) -> int:
        """Doubles.

        Parameters
        ----------
        a : int
            The number.

        Returns
        -------
        int
            Twice the number.
        """
        return 2 * a

    @tool
    def sphinx_style(a: int) -> int:
        """Doubles.

        :param a: The number.
        :returns: Twice the number.
        """
        return 2 * a

    for each in (numpy_style, sphinx_style):
        assert each.card.description == "Doubles.\n\nReturns: Twice the number."
        assert each.card.input_schema["properties"]["a"] == {"type": "integer", "description": "The number."}


DOCSTRINGS = {
    "google": "Does.\n\nArgs:\n    a (int): The a.\n    b (list[str], optional): The b,\n        goes on.\n",
    "no blank line": "Does.\nArgs:\n    a: The a.\n    b: The b,\n        goes on.\nReturns:\n    str: Text.\n",
    "two lines above": "Does.\nAnd: more.\nArguments:\n    a: The a.\n    b: The b, goes on.\n\nExample:\n    >>> 1\n",
    "lower case": "Does.\nargs:\n    a: The a.\n    b: The b, goes on.\n",
    "tabs": "Does.\n\tArgs:\n\t\ta: The a.\n\t\tb: The b, goes on.\n",
    "not indented": "Does.\n\nArgs:\na: The a.\nb: The b,\n    goes on.\n",
    "a list": "Does.\n\nArgs:\n    - a (int): The a.\n    - b: The b, goes on.\n",
    "backticks": "Does.\n\nArgs:\n    `a` (`int`): The a.\n    b (`str`, *optional*): The b, goes on.\n",
    "dashes": "Does.\n\nArgs:\n    a - The a.\n    b -- The b, goes on.\n",
    "keyword arguments": "Does.\n\nArgs:\n    a: The a.\nKeyword Args:\n    b: The b, goes on.\n",
    "a paragraph": "Does.\n\nArgs:\n    a: The a.\n\n    b: The b,\n\n        goes on.\n",
    "numpy": "Does.\nParameters\n----------\na : int\n    The a.\nb : str, optional\n    The b,\n    goes on.\n",
    "numpy, others": "Does.\n\nParameters\n----------\na : int\n    The a.\n\nOther Parameters\n----------------\n"
    "b : str\n    The b, goes on.\n",
    "rest": "Does.\n:param a: The a.\n:type a: int\n:param str b: The b,\n    goes on.\n:rtype: str\n",
    "rest, arg": "Does.\n\n:arg a: The a.\n:arg b: The b, goes on.\n:returns: Text.\n",
    "epydoc": "Does.\n\n@param a: The a.\n@param b: The b, goes on.\n",
}


@pytest.mark.parametrize("style", DOCSTRINGS)
def test_parameters_are_described_in_any_style(style: str) -> None:
    def act(a: int, b: str) -> str:
        return b * a

    act.__doc__ = DOCSTRINGS[style]
    card = tool(act).card
    described = {name: about.get("description") for name, about in card.input_schema["properties"].items()}
    assert described == {"a": "The a.", "b": "The b, goes on."}
    assert card.description.startswith("Does.")
    assert "The a" not in card.description


def test_annotated_wins_over_the_docstring_and_constrains() -> None:
    @tool
    def roll(
        dice: Annotated[int, msgspec.Meta(ge=1, description="From the hint.")],
        sides: Annotated[int, msgspec.Meta(le=20)] = 6,
        colour: Annotated[str, "A plain string."] = "white",
    ) -> int:
        """Rolls.

        Args:
            dice: From the docstring.
            sides: From the docstring.
        """
        return dice * sides

    assert roll.card.input_schema["properties"] == {
        "dice": {"type": "integer", "minimum": 1, "description": "From the hint."},
        "sides": {"type": "integer", "maximum": 20, "description": "From the docstring.", "default": 6},
        "colour": {"type": "string", "description": "A plain string.", "default": "white"},
    }
    with pytest.raises(InvalidArguments, match="argument 'dice': "):
        roll.validate({"dice": 0})


def test_options_reach_the_card() -> None:
    options: dict[str, Any] = {"name": "pay-bill", "description": "Pays.", "idempotent": True, "timeout": 3}
    options |= {"labels": {"team": "money"}, "version": "2"}

    @tool(**options)
    def pay(amount: float) -> None:
        pass

    assert {name: getattr(pay.card, name) for name in options} == options
    assert (pay.card.read_only, pay.card.output_schema) == (False, {"type": "null"})


def test_parameters_need_no_description() -> None:
    @tool
    def double(a: int) -> Any:
        """Doubles."""
        return 2 * a

    assert double.card.input_schema["properties"] == {"a": {"type": "integer"}}
    assert double.card.output_schema is None


def test_what_a_tool_returns_shows_in_its_signature() -> None:
    @tool
    def greet(name: str) -> str:
        """Greets."""
        return f"Hello {name}"

    @tool
    def forget(name: str) -> None:
        """Forgets."""

    @tool
    def ask(name: str):  # type: ignore[no-untyped-def]
        """Asks."""

    assert signature_of(greet.card) == "(name: str) -> str"
    assert signature_of(forget.card) == "(name: str) -> None"
    assert signature_of(ask.card) == "(name: str) -> Any"


def test_a_schema_is_self_contained_and_without_titles() -> None:
    @tool
    def draw(  # noqa: PLR0913
        at: Point,
        tree: Tree,
        title: str,
        colour: Colour = Colour.RED,
        mode: Literal["fast", "fine"] = "fast",
        options: Options | None = None,
        path: list[Point] = [],  # noqa: B006 - what users write
    ) -> dict[str, Point]:
        """Draws."""
        return {}

    schema = draw.card.input_schema
    jsonschema_rs.meta.validate(schema)
    # "title" is a parameter here, not the keyword.
    assert schema["properties"]["title"] == {"type": "string"}
    assert _keys(schema).isdisjoint({"discriminator"})
    assert all(not isinstance(value, str) for value in _values_of(schema, "title"))
    validator = jsonschema_rs.Draft202012Validator(schema)
    fitting = {"at": {"x": 1}, "tree": {"value": 1, "children": [{"value": 2}]}, "title": "T"}
    assert validator.is_valid(fitting)
    assert not validator.is_valid({**fitting, "tree": {"value": 1, "children": [{"value": "two"}]}})
    assert not validator.is_valid({**fitting, "more": 1})
    assert schema["properties"]["colour"]["default"] == "red"
    assert schema["properties"]["path"]["default"] == []
    jsonschema_rs.meta.validate(draw.card.output_schema or {})


def _values_of(schema: Any, key: str) -> Iterator[Any]:
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == key:
                yield value
            yield from _values_of(value, key)
    elif isinstance(schema, list):
        for value in schema:
            yield from _values_of(value, key)


def _keys(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema) | {key for value in schema.values() for key in _keys(value)}
    return {key for value in schema for key in _keys(value)} if isinstance(schema, list) else set()


def test_an_output_that_is_no_json_has_no_schema() -> None:
    @tool
    def make() -> NotJson:
        """Makes."""
        return NotJson()

    assert make.card.output_schema is None


# --- what the model may pass


@tool
def plan(day: date, at: Point, colours: dict[int, Colour], note: str | None = None) -> str:
    """Plans."""
    return ""


def test_values_become_what_the_hints_say() -> None:
    values = plan.validate({"day": "2026-03-01", "at": {"x": 1}, "colours": {"7": "blue"}})
    assert values == {"day": date(2026, 3, 1), "at": Point(1, 0), "colours": {7: Colour.BLUE}}


GOOD: dict[str, Any] = {"day": "2026-03-01", "at": {"x": 1}, "colours": {}}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({**GOOD, "note": 3}, ["'note'"]),
        ({**GOOD, "at": {"x": "1"}}, ["'at.x'"]),
        ({**GOOD, "at": {}}, ["'at.x'"]),
        ({**GOOD, "day": "soon"}, ["'day'"]),
        ({"day": "2026-03-01", "colours": {}}, ["'at'"]),
        ({**GOOD, "dya": 1}, ["'dya'", "plan", "day, at, colours, note"]),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(InvalidArguments) as raised:
        plan.validate(arguments)
    assert holds(str(raised.value), *named)


def test_the_functions_own_default_object_is_used() -> None:
    marker: list[int] = []

    @tool
    def keep(items: list[int] = marker) -> list[int]:
        """Keeps."""
        return items

    assert asyncio.run(keep.call({}, ToolContext())) is marker


def test_a_tool_keeps_its_type() -> None:
    typed: Tool[..., list[str]] = search
    result: list[str] = search("a")
    assert isinstance(typed, Tool)
    assert result == ["a"] * 5
