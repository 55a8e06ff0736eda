"""Turns tools of smolagents and LangChain into Cadre tools. Neither library is imported here.

    search = from_smolagents(DuckDuckGoSearchTool(), read_only=True)
    wiki = from_langchain(WikipediaQueryRun(…), name="wikipedia", read_only=True)

in a module that `cadre tools` serves. The options are those of `@tool`; they override what the object says.
"""

import inspect
import threading
from collections.abc import Callable
from typing import Any, Unpack

from cadre.errors import ToolDefinitionError
from cadre.protocol.cards import ToolCard
from cadre.spec.answer_schema import SchemaCheck, TooMuchToCheck
from cadre.tools.decorator import InvalidArguments, Tool, ToolOptions, check_options, make_card
from cadre.tools.files import File, file_output_schema
from cadre.tools.signature import Signature

_JSON_TYPES = frozenset({"string", "boolean", "integer", "number", "array", "object", "null"})


class ForeignTool(Tool[..., Any]):
    """A tool whose arguments are checked by its JSON Schema."""

    promises_output = False

    def __init__(self, function: Callable[..., Any], card: ToolCard, concurrency: int | None) -> None:
        signature = Signature(card.description, {}, card.input_schema, card.output_schema, None)
        super().__init__(function, card, signature, concurrency)
        self.__name__ = card.name
        self._check = SchemaCheck(card.input_schema)

    def _checked(self, arguments: dict[str, Any], files: list[File]) -> dict[str, Any]:
        """The arguments unchanged. Raises InvalidArguments, which names the first wrong one."""
        try:
            errors = self._check.errors(arguments)
        except TooMuchToCheck as error:
            raise InvalidArguments(str(error)) from error
        for first in errors:
            path = ".".join(str(part) for part in first.instance_path)
            raise InvalidArguments(f"argument {path!r}: {first.message}" if path else first.message)
        return dict(arguments)


def from_smolagents(foreign: Any, **options: Unpack[ToolOptions]) -> Tool[..., Any]:
    """The tool of an object with `name`, `description`, `inputs`, `output_type` and `forward`.

    Its `setup()` is called once, before the first call. Each call gets a thread: give `concurrency=1` for an object
    that must not be called twice at once. Raises ToolDefinitionError.
    """
    where = _where(foreign, ("name", "description", "inputs", "output_type", "forward"))
    schema = _schema_of_inputs(foreign, where)
    kind = foreign.output_type
    output = file_output_schema(File) if kind in ("image", "audio") else _type_of(kind, f"{where}: its output")
    ready = threading.Lock()

    def call(**arguments: Any) -> Any:
        with ready:
            if not getattr(foreign, "is_initialized", True):
                foreign.setup()
                foreign.is_initialized = True
        return foreign.forward(**arguments)

    card = _card(foreign, schema, getattr(foreign, "output_schema", None) or output or None)
    return _tool(call, card, options, where)


def from_langchain(foreign: Any, **options: Unpack[ToolOptions]) -> Tool[..., Any]:
    """The tool of an object with `name`, `description`, `args_schema` or `args`, and `invoke`.

    An object made of a coroutine is awaited, any other gets a thread. Raises ToolDefinitionError.
    """
    where = _where(foreign, ("name", "description", "args_schema", "invoke"))
    schema = _schema_of_args(foreign, where)

    def call(**arguments: Any) -> Any:
        return foreign.invoke(arguments)

    async def call_async(**arguments: Any) -> Any:
        return await foreign.ainvoke(arguments)

    is_async = getattr(foreign, "coroutine", None) is not None
    return _tool(call_async if is_async else call, _card(foreign, schema), options, where)


def _card(foreign: Any, inputs: dict[str, Any], output: dict[str, Any] | None = None) -> ToolCard:
    return ToolCard(
        name=foreign.name,
        description=inspect.cleandoc(foreign.description),
        input_schema=inputs,
        output_schema=output,
    )


def _tool(function: Callable[..., Any], card: ToolCard, options: ToolOptions, where: str) -> Tool[..., Any]:
    options = check_options(options, card.name, where)
    try:
        return ForeignTool(function, make_card(card, options, where), options.get("concurrency"))
    except ValueError as error:
        problem = str(error).splitlines()[0]
        raise ToolDefinitionError(f"{where}: its schema of inputs is wrong: {problem}") from error


def _where(foreign: Any, needed: tuple[str, ...]) -> str:
    kind = foreign if isinstance(foreign, type) else type(foreign)
    where = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(foreign, type):
        raise ToolDefinitionError(f"{where} is a class: make a tool of it first: {kind.__name__}(…)")
    lacking = [name for name in needed if not hasattr(foreign, name)]
    if lacking:
        raise ToolDefinitionError(f"{where} is no tool of that library: it has no {', '.join(lacking)}")
    return f"{where}: tool {foreign.name}"


# --- smolagents


def _schema_of_inputs(foreign: Any, where: str) -> dict[str, Any]:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(foreign.forward).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    takes_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD
        for parameter in inspect.signature(foreign.forward).parameters.values()
    )
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, about in foreign.inputs.items():
        nullable = bool(about.get("nullable"))
        kind = _type_of(about.get("type", "any"), f"{where}: input {name}", nullable=nullable)
        rest = {key: value for key, value in about.items() if key not in ("type", "nullable")}
        properties[name] = {**rest, **kind}
        if name in defaults and isinstance(defaults[name], str | int | float | None):
            properties[name]["default"] = defaults[name]
        if name not in defaults and not (nullable and takes_any):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _type_of(kinds: str | list[str], what: str, *, nullable: bool = False) -> dict[str, Any]:
    """The JSON Schema of a smolagents type; {} for any."""
    named = [kinds] if isinstance(kinds, str) else list(kinds)
    if "any" in named:
        return {}
    strange = [kind for kind in named if kind not in _JSON_TYPES]
    if strange:
        raise ToolDefinitionError(f"{what} is of type {', '.join(strange)}, which JSON cannot carry")
    if nullable and "null" not in named:
        named.append("null")
    return {"type": named[0] if len(named) == 1 else named}


# --- LangChain


def _schema_of_args(foreign: Any, where: str) -> dict[str, Any]:
    # The arguments for a model, without those that LangChain injects.
    model = getattr(foreign, "tool_call_schema", None) if foreign.args_schema is not None else None
    model = model if model is not None else foreign.args_schema
    if isinstance(model, dict):
        schema = dict(model)
    elif hasattr(model, "model_json_schema"):
        schema = model.model_json_schema()
    elif isinstance(getattr(foreign, "args", None), dict):
        required = [name for name, about in foreign.args.items() if "default" not in about]
        schema = {"properties": foreign.args, "required": required}
    else:
        raise ToolDefinitionError(f"{where}: it does not say what it takes: give it an args_schema")
    # Name and description stand in the card already.
    about = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {"type": "object", "properties": {}, "additionalProperties": False, **about}
