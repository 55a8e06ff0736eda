"""Every type of the table in docs/tools.md as a parameter and as a result, by a call of a tool in the executor."""

import asyncio
import datetime
import sys
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pydantic
import pytest
from pydantic import Field

from cadre.engine.calls.call_check import check_arguments
from cadre.engine.calls.call_schema import call_schema
from cadre.errors import ToolDefinitionError
from cadre.protocol.messages import ToolCall
from cadre.runtime.invocation import InvocationOutcome, Invocations
from cadre.spec.answer_schema import is_strict, misfits
from cadre.tool import InvalidArguments, ToolContext, tool
from cadre.tools.loading import AnyTool
from generate import tool_types
from generate.tool_types import EXAMPLES, RESULTS, Address, Example
from harness.provider_schemas import gemini_problems, openai_function_problems, openai_strict_problems

PATIENCE = 30.0


async def outcome_of(made: AnyTool, **arguments: Any) -> InvocationOutcome:
    check_arguments(made.name, made.card.input_schema, arguments)
    call = ToolCall(id="r_1_0", tree="r", run="r", at=0.0, agent="boss", tool=made.name, arguments=arguments)
    return await asyncio.wait_for(Invocations().run(made, call, 1), PATIENCE)


_OF_PYDANTIC = ("Address", "Person", "Box", "Numbers", "Parcel", "Visit", "Order", "AnyUrl", "date | Literal")
"""Parts of the hints that only pydantic reads."""


def echo(hint: Any, seen: list[Any] | None = None) -> AnyTool:
    """A tool that takes a value and returns it."""

    async def give(value: Any) -> Any:
        """Gives it back.

        Args:
            value: What is given back.
        """
        if seen is not None:
            seen.append(value)
        return value

    give.__annotations__ = {"value": hint, "return": hint}
    return tool(give)


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row.hint)
async def test_a_type_is_taken_and_returned(row: Example) -> None:
    seen: list[Any] = []
    made = echo(row.type, seen)
    outcome = await outcome_of(made, value=row.json)
    assert (outcome.error, outcome.note) == (None, "")
    assert outcome.output == row.json
    assert seen == [row.python]
    assert type(seen[0]) is type(row.python)
    if made.card.output_schema is not None:
        assert misfits(made.card.output_schema, outcome.output) == []


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row.hint)
def test_its_schema_is_as_endpoints_want_it(row: Example) -> None:
    schema = echo(row.type).card.input_schema
    jsonschema_rs.meta.validate(schema)
    assert schema["properties"]["value"]["description"]
    assert [*openai_function_problems(schema)] == []
    assert [*gemini_problems(schema)] == []
    whole = call_schema([{"function": {"name": "give", "parameters": schema}}])
    assert [*openai_strict_problems(whole)] == [] or not is_strict(whole)


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row.hint)
def test_without_pydantic_a_type_is_read_by_msgspec_or_refused(row: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    monkeypatch.setitem(sys.modules, "pydantic.json_schema", None)
    needs_it = any(word in row.hint for word in _OF_PYDANTIC)
    if needs_it:
        with pytest.raises(ToolDefinitionError, match="parameter 'value'"):
            echo(row.type)
        return
    made = echo(row.type)
    assert [*openai_function_problems(made.card.input_schema)] == []
    assert made.validate({"value": row.json})["value"] == row.python


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row.hint)
async def test_what_else_a_tool_may_return(row: Example) -> None:
    @tool
    def give() -> Any:
        """Gives."""
        return row.python()

    outcome = await outcome_of(give)
    assert (outcome.output, outcome.error, outcome.note) == (row.json, None, "")


async def test_an_async_iterator_is_read_to_its_end() -> None:
    async def count() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    @tool
    async def give() -> AsyncIterator[int]:
        """Gives."""
        return count()

    assert (await outcome_of(give)).output == [0, 1, 2]
    assert give.card.output_schema == {"type": "array", "items": {"type": "integer"}}


# --- schemas


def test_what_a_field_says_reaches_the_schema() -> None:
    @tool
    def order(
        to: Address,
        many: Annotated[int, Field(ge=1, le=9, title="Number", description="How many.")] = 3,
        size: Literal["small", "large", "huge"] = "large",
        when: datetime.datetime | None = None,
    ) -> str:
        """Orders.
        Args:
            to: Where to.
            many: Not this.
        """
        return to.street

    assert order.card.input_schema == {
        "type": "object",
        "properties": {
            "to": {
                "type": "object",
                "description": "Where to.",
                "properties": {
                    "Street": {"type": "string", "title": "The street", "description": "With its number."},
                    "zip": {"type": "integer", "minimum": 1000, "maximum": 9999, "default": 3000},
                },
                "required": ["Street"],
            },
            "many": {
                "type": "integer",
                "title": "Number",
                "description": "How many.",
                "minimum": 1,
                "maximum": 9,
                "default": 3,
            },
            "size": {"type": "string", "enum": ["small", "large", "huge"], "default": "large"},
            "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
        },
        "required": ["to"],
        "additionalProperties": False,
    }


WORDS: Any = Field(default_factory=lambda: ["a"], description="What.")


def test_a_default_may_be_a_field() -> None:
    seen: list[Any] = []

    @tool
    async def look(words: list[str] = WORDS) -> str:
        """Looks."""
        seen.append(words)
        return ""

    about = look.card.input_schema
    assert about["required"] == []
    assert about["properties"]["words"]["default"] == ["a"]
    asyncio.run(look.call({}, ToolContext()))
    assert seen == [["a"]]


def test_two_definitions_of_one_name_are_told_apart() -> None:
    def other() -> Any:
        class Tree(msgspec.Struct):
            name: str
            inner: "list[Tree]" = []

        Tree.__module__, globals_of = __name__, globals()
        globals_of["Tree"] = Tree
        return Tree

    kinds = (tool_types.Tree, other())

    async def plant(one: Any, two: Any) -> str:
        """Plants."""
        return ""

    plant.__annotations__ |= {"one": kinds[0], "two": kinds[1]}
    schema = tool(plant).card.input_schema
    jsonschema_rs.meta.validate(schema)
    check = jsonschema_rs.validator_for(schema)
    given = {
        "one": {"value": 1, "children": [{"value": 2}]},
        "two": {"name": "a", "inner": [{"name": "b"}]},
    }
    assert check.is_valid(given)
    assert not check.is_valid(given | {"two": {"name": "a", "inner": [{"value": 2}]}})


def test_a_bound_method_is_a_tool() -> None:
    class Box:
        def add(self, number: int) -> int:
            """Adds."""
            return number + 1

    made = tool(Box().add)
    assert (made.name, [*made.card.input_schema["properties"]]) == ("add", ["number"])
    assert asyncio.run(made.call({"number": 2}, ToolContext())) == 3


class NoJson:
    """A class that JSON does not know."""


@pytest.mark.parametrize(
    "hint",
    [NoJson, list[NoJson], dict[str, NoJson | None], Callable[[int], str], complex | NoJson, type[int]],
)
def test_a_type_that_cannot_be_offered_is_refused_when_it_is_loaded(hint: Any) -> None:
    def take(value: Any) -> str:
        """Takes.

        Args:
            value: Documented.
        """
        return ""

    take.__annotations__["value"] = hint
    with pytest.raises(ToolDefinitionError) as raised:
        tool(take)
    text = str(raised.value)
    assert "parameter 'value'" in text
    assert "pydantic model" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("hint", "given", "place"),
    [
        (Address, {"Street": "a", "zip": 5}, "'value.zip'"),
        (Address, {"Street": 5}, "'value.Street'"),
        (list[Address], [{"Street": "a"}, {"zip": 3000}], "'value.1.Street'"),
        (int, "5", "'value'"),
        (tool_types.Tree, {"value": "x"}, "'value.value'"),
        (datetime.date, "soon", "'value'"),
    ],
)
def test_a_wrong_argument_is_named_with_its_place(hint: Any, given: Any, place: str) -> None:
    with pytest.raises(InvalidArguments, match=f"argument {place}"):
        echo(hint).validate({"value": given})


# --- results


class Base(pydantic.BaseModel):
    a: int


class More(Base):
    b: str = "whole"
    raw: bytes = b"\x89PNG"
    made: datetime.date = datetime.date(2026, 1, 2)

    @pydantic.field_serializer("a")
    def _as_text(self, value: int) -> str:
        return f"<{value}>"


async def test_a_model_of_a_subclass_is_given_whole_with_its_bytes_as_a_file() -> None:
    @tool
    def give() -> list[Base]:
        """Gives."""
        return [More(a=1)]

    outcome = await outcome_of(give)
    given = outcome.output[0]
    assert (given["a"], given["b"], given["made"], outcome.error) == ("<1>", "whole", "2026-01-02", None)
    assert given["raw"]["$file"]["size"] == len(b"\x89PNG")
    assert len(outcome.files) == 1
