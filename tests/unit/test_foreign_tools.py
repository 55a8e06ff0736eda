"""Tools of smolagents and LangChain as tools of ours: objects of the same shape, without the libraries."""

import asyncio
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cadre.errors import ToolDefinitionError
from cadre.tool import InvalidArguments, ToolContext
from cadre.tools.foreign import from_langchain, from_smolagents
from cadre.tools.loading import load_tools


class Shout:
    """As a subclass of smolagents.Tool looks."""

    name = "shout"
    description = "Makes a text loud."
    inputs: ClassVar[dict[str, dict[str, Any]]] = {
        "text": {"type": "string", "description": "What to shout."},
        "times": {"type": "integer", "description": "How often.", "nullable": True},
    }
    output_type = "string"
    is_initialized = False

    def __init__(self) -> None:
        self.setups = 0

    def setup(self) -> None:
        self.setups += 1
        self.is_initialized = True

    def forward(self, text: str, times: int | None = 1) -> str:
        assert self.is_initialized
        return text.upper() * (times or 1)


class Model:
    """As a model of pydantic looks."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def model_json_schema(self) -> dict[str, Any]:
        return self._schema


PRODUCT = {
    "title": "multiply",
    "description": "Multiplies.",
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 3}},
    "required": ["a"],
}


class Multiply:
    """As a langchain_core.tools.BaseTool looks."""

    name = "multiply"
    description = "Multiplies two numbers."

    def __init__(self, args_schema: Any = None, args: dict[str, Any] | None = None) -> None:
        self.args_schema = args_schema
        if args is not None:
            self.args = args

    def invoke(self, arguments: dict[str, Any]) -> int:
        self.thread = threading.current_thread()
        product: int = arguments["a"] * arguments.get("b", 3)
        return product


class MultiplySoon(Multiply):
    """As one that was made of a coroutine function."""

    coroutine = True

    async def ainvoke(self, arguments: dict[str, Any]) -> int:
        await asyncio.sleep(0)
        return self.invoke(arguments)


# --- smolagents


async def test_a_tool_of_smolagents_is_described_and_called() -> None:
    shout = from_smolagents(Shout(), read_only=True, timeout=5)
    assert (shout.name, shout.card.description) == ("shout", "Makes a text loud.")
    assert shout.card.input_schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to shout."},
            "times": {"type": ["integer", "null"], "description": "How often.", "default": 1},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert (shout.card.read_only, shout.card.timeout) == (True, 5)
    assert shout.card.output_schema == {"type": "string"}
    assert await shout.call({"text": "a", "times": 2}, ToolContext()) == "AA"
    assert await shout.call({"text": "a", "times": None}, ToolContext()) == "A"


async def test_its_setup_is_done_once_however_many_call_at_once() -> None:
    foreign = Shout()
    shout = from_smolagents(foreign)
    assert foreign.setups == 0
    await asyncio.gather(*(shout.call({"text": "a"}, ToolContext()) for _ in range(8)))
    assert foreign.setups == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, '"text" is a required property'),
        ({"text": 3}, "argument 'text': 3 is not of type"),
        ({"text": "a", "loud": True}, "loud"),
    ],
)
async def test_wrong_arguments_are_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        await from_smolagents(Shout()).call(arguments, ToolContext())
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("output", "schema"),
    [
        ("string", {"type": "string"}),
        ("any", None),
        ("number", {"type": "number"}),
        ("object", {"type": "object"}),
        ("image", {"required": ["$file"]}),
        ("audio", {"required": ["$file"]}),
    ],
)
def test_what_it_returns_is_told(output: str, schema: dict[str, Any] | None) -> None:
    foreign = Shout()
    foreign.output_type = output
    found = from_smolagents(foreign).card.output_schema
    assert found == schema or (found or {})["required"] == (schema or {})["required"]


def test_what_json_cannot_carry_is_refused() -> None:
    class Listen(Shout):
        inputs: ClassVar[dict[str, dict[str, Any]]] = {"text": {"type": "audio"}}

    with pytest.raises(ToolDefinitionError, match="input text is of type audio"):
        from_smolagents(Listen())
    foreign = Shout()
    foreign.output_type = "tensor"
    with pytest.raises(ToolDefinitionError, match="tool shout: its output is of type tensor"):
        from_smolagents(foreign)


# --- LangChain


@pytest.mark.parametrize("schema", [PRODUCT, Model(PRODUCT)])
async def test_a_tool_of_langchain_is_described_and_called(schema: Any) -> None:
    foreign = Multiply(schema)
    multiply = from_langchain(foreign)
    assert multiply.card.description == "Multiplies two numbers."
    assert multiply.card.input_schema == {
        "type": "object",
        "properties": PRODUCT["properties"],
        "required": ["a"],
        "additionalProperties": False,
    }
    assert await multiply.call({"a": 2}, ToolContext()) == 6
    assert foreign.thread is not threading.current_thread()
    with pytest.raises(InvalidArguments, match="argument 'a'"):
        await multiply.call({"a": "two"}, ToolContext())


async def test_one_written_for_asyncio_is_awaited() -> None:
    foreign = MultiplySoon(PRODUCT)
    assert await from_langchain(foreign).call({"a": 2, "b": 2}, ToolContext()) == 4
    assert foreign.thread is threading.current_thread()


def test_a_model_is_not_shown_what_the_library_puts_in_itself() -> None:
    foreign = Multiply(Model({**PRODUCT, "required": ["a", "user"]}))
    foreign.tool_call_schema = Model(PRODUCT)  # type: ignore[attr-defined]
    assert from_langchain(foreign).card.input_schema["required"] == ["a"]


def test_one_without_a_schema_says_its_arguments() -> None:
    card = from_langchain(Multiply(args={"a": {"type": "integer"}, "b": {"default": 1}})).card
    assert card.input_schema["required"] == ["a"]
    with pytest.raises(ToolDefinitionError, match="args_schema"):
        from_langchain(Multiply())


# --- both


def test_options_win() -> None:
    options: dict[str, Any] = {
        "name": "cry",
        "description": "Cries.",
        "approval": "when: times > 3",
        "idempotent": True,
    }
    card = from_smolagents(Shout(), **options).card
    assert {name: getattr(card, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "loud voice"}, "name 'loud voice'"),
        ({"name": "final_answer"}, "'final_answer'"),
        ({"approval": "when: amount > 3"}, "asks about amount"),
        ({"description": " "}, "write a docstring"),
        ({"timeout": 0}, "timeout=0"),
        ({"colour": "red"}, "no option 'colour'"),
    ],
)
def test_what_no_model_could_use_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolDefinitionError, match=problem):
        from_smolagents(Shout(), **options)


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"\bShout\b"):
        from_smolagents(Shout)
    with pytest.raises(ToolDefinitionError, match="it has no args_schema, invoke"):
        from_langchain(Shout())
    with pytest.raises(ToolDefinitionError, match="number of things"):
        from_langchain(Multiply({"type": "object", "properties": {"a": {"type": "number of things"}}}))


def test_it_is_found_in_a_module(tmp_path: Path) -> None:
    file = tmp_path / "foreign.py"
    file.write_text(
        "from cadre.tools.foreign import from_smolagents\n"
        "class Echo:\n"
        "    name, description, output_type = 'echo', 'Says it again.', 'string'\n"
        "    inputs = {'text': {'type': 'string', 'description': 'What.'}}\n"
        "    def forward(self, text): return text\n"
        "echo = from_smolagents(Echo())\n"
    )
    assert [tool.name for tool in load_tools(str(file))] == ["echo"]
