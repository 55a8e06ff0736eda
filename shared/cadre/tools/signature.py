"""Reads the JSON Schemas and descriptions of a typed, documented function."""

import copy
import inspect
import sys
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from cadre.errors import ToolDefinitionError
from cadre.tools.context import ToolContext
from cadre.tools.files import File
from cadre.tools.json_types import JsonType, NotOffered, lists_for_iterators, read_type


class FilledIn(NamedTuple):
    """A parameter that a model fills in."""

    kind: JsonType
    default: Any = inspect.Parameter.empty
    """The argument of the function where the model leaves it out; empty: the function's own default."""


class Signature(NamedTuple):
    """The description and the schemas of a function."""

    description: str
    """The docstring without its parameters; "" without a docstring."""
    parameters: dict[str, FilledIn]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    context: str | None
    """Name of the parameter that takes the ToolContext."""


def read_signature(function: Callable[..., Any], where: str) -> Signature:
    """Read the signature. Raises ToolDefinitionError, beginning with `where`, if no model could use the function."""
    # Loaded by the first @tool: `import cadre` and the command line do without.
    from cadre.tools.docstring import read_docstring

    text, documented = read_docstring(function)
    hints = _read_hints(function, where)
    signature = inspect.signature(function)
    found: dict[str, FilledIn] = {}
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    definitions: dict[str, Any] = {}
    context: str | None = None
    for name, parameter in signature.parameters.items():
        _check_kind(parameter, where)
        if name not in hints:
            raise ToolDefinitionError(
                f"{where}: parameter {name!r} has no type hint: write one, like {name}: str"
                + (" (a tool is a function or a bound method: tool(object.method))" if name == "self" else "")
            )
        if _wants_context(hints[name]):
            context = name
            continue
        found[name], about, is_required = _parameter(parameter, hints[name], documented.get(name), where)
        schema["properties"][name] = _moved(about, definitions)
        if is_required:
            schema["required"].append(name)
    _check_documented(documented, signature.parameters, where)
    schema["additionalProperties"] = False
    if definitions:
        schema["$defs"] = definitions
    return Signature(text, found, schema, _output_schema(hints.get("return")), context)


def _check_documented(documented: dict[str, str], parameters: Any, where: str) -> None:
    unknown = sorted(set(documented) - set(parameters))
    if unknown:
        raise ToolDefinitionError(
            f"{where}: the docstring describes {', '.join(unknown)}, which the function does not take:"
            f" its parameters are {', '.join(parameters) or 'none'}"
        )


# --- hints and defaults


def _read_hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=_local_names(function), include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ToolDefinitionError(
            f"{where}: a type hint cannot be resolved: {error}: define the type at the top of the module,"
            " and import it outside of `if TYPE_CHECKING`"
        ) from error


def _local_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names where the function is being defined, which hints that are texts may refer to."""
    file = function.__code__.co_filename
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back  # type: ignore[assignment]
    return {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _check_kind(parameter: inspect.Parameter, where: str) -> None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            name = str(parameter).partition(":")[0]
            raise ToolDefinitionError(
                f"{where}: {name} cannot be described to a model: name each parameter, or take a list"
            )
        case inspect.Parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(
                f"{where}: parameter {parameter.name!r} is positional-only: models call by name: drop the '/'"
            )


def _wants_context(hint: Any) -> bool:
    if get_origin(hint) in (Annotated, Union, types.UnionType):
        return any(_wants_context(argument) for argument in get_args(hint))
    return hint is ToolContext


def _parameter(
    parameter: inspect.Parameter, hint: Any, documented: str | None, where: str
) -> tuple[FilledIn, dict[str, Any], bool]:
    """The parameter, its schema, and whether it is required."""
    hint, default, is_field = _field_default(lists_for_iterators(hint), parameter.default)
    try:
        kind = read_type(hint)
    except NotOffered as error:
        raise ToolDefinitionError(
            f"{where}: parameter {parameter.name!r} has a type that no model can be offered,"
            f" {inspect.formatannotation(hint)}: {error}: use str, int, float, bool, list, dict, Literal, Enum, a"
            " dataclass, TypedDict, pydantic model or msgspec.Struct"
        ) from error
    about = dict(kind.schema)
    if documented and not _is_described(hint):
        about["description"] = documented
    if default is inspect.Parameter.empty:
        return FilledIn(kind), about, True
    about["default"] = _check_default(parameter.name, default, kind, where)
    return FilledIn(kind, default if is_field else inspect.Parameter.empty), about, False


def _is_described(hint: Any) -> bool:
    """True: `Annotated` describes the parameter, which wins over the docstring."""
    metadata = getattr(hint, "__metadata__", ())
    return any(isinstance(one, str) or getattr(one, "description", None) is not None for one in metadata)


def _field_default(hint: Any, default: Any) -> tuple[Any, Any, bool]:
    """The hint and the default, with what a pydantic `Field` says as either; and whether the default is of a Field."""
    if _is_field(default):
        hint = Annotated[hint, default]
        default = inspect.Parameter.empty
    if default is not inspect.Parameter.empty:
        return hint, default, False
    for one in getattr(hint, "__metadata__", ()):
        if _is_field(one) and not one.is_required():
            return hint, one.get_default(call_default_factory=True), True
    return hint, default, False


def _is_field(value: Any) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def _check_default(name: str, default: Any, kind: JsonType, where: str) -> Any:
    """The default as JSON."""
    try:
        shown = kind.dump(copy.deepcopy(default))
        kind.load(shown, [])
        msgspec.json.encode(shown)
    except (TypeError, ValueError) as error:
        advice = f": write {name}: … | None = None" if default is None else ""
        problem = str(error).strip().splitlines()[-1]
        raise ToolDefinitionError(
            f"{where}: the default of {name!r} does not fit its hint: {problem}{advice}"
        ) from error
    return shown


# --- schemas


def _moved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its definitions, which go to those of all parameters; one of a name that is taken by another
    gets a number."""
    own = schema.get("$defs", {})
    text = msgspec.json.encode({key: value for key, value in schema.items() if key != "$defs"}).decode()
    for name, one in own.items():
        new, number = name, 1
        while new in definitions and definitions[new] != one:
            number += 1
            new = f"{name}_{number}"
        definitions[new] = one
        if new != name:
            text = text.replace(f'"#/$defs/{name}"', f'"#/$defs/{new}"')
            inner = msgspec.json.encode(one).decode().replace(f'"#/$defs/{name}"', f'"#/$defs/{new}"')
            definitions[new] = msgspec.json.decode(inner)
    moved: dict[str, Any] = msgspec.json.decode(text)
    return moved


def _output_schema(hint: Any) -> dict[str, Any] | None:
    while get_origin(hint) is Annotated and not any(map(_is_field, hint.__metadata__)):
        hint = get_args(hint)[0]
    if hint is None or hint is Any:
        return None
    if hint in (bytes, bytearray, memoryview):
        hint = File  # the executor makes files of bytes
    try:
        return read_type(lists_for_iterators(hint), output=True).schema
    except NotOffered:
        return None  # not JSON itself: the executor sends its text
