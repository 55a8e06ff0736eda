"""Reads the JSON Schemas and descriptions of a typed, documented function."""

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from cadre.errors import ToolDefinitionError
from cadre.tools.context import ToolContext
from cadre.tools.files import File, file_output_schema, file_schema


class Signature(NamedTuple):
    """The description and the schemas of a function."""

    description: str
    """The docstring without its parameters; "" when there is none."""
    arguments: type[msgspec.Struct]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    context: str | None
    """Name of the parameter that takes the ToolContext."""


def read_signature(function: Callable[..., Any], where: str) -> Signature:
    """Reads the signature. Raises ToolDefinitionError, beginning with `where`, if no model could use the function."""
    # Loaded by the first @tool: `import cadre` and the command line do without.
    from cadre.tools.docstring import read_docstring

    text, documented = read_docstring(function)
    hints = _read_hints(function, where)
    fields: list[tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    context: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        _check_kind(parameter, where)
        if name not in hints:
            raise ToolDefinitionError(
                f"{where}: parameter {name!r} has no type hint: write one, like {name}: str"
                + (" (a tool is a function, not a method)" if name == "self" else "")
            )
        hint = hints[name]
        if _wants_context(hint):
            context = name
            continue
        hint = _with_description(hint, documented.get(name))
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, hint, msgspec.NODEFAULT))
            continue
        defaults[name] = _check_default(parameter, hint, where)
        # Only makes the field optional in the schema: the function applies its own default.
        factory = functools.partial(copy.deepcopy, defaults[name])
        fields.append((name, hint, msgspec.field(default_factory=factory)))
    _check_documented(documented, inspect.signature(function).parameters, where)
    arguments, schema = _build(function.__name__, fields, where)
    for name, default in defaults.items():
        schema["properties"][name]["default"] = default
    return Signature(text, arguments, schema, _output_schema(hints.get("return")), context)


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
        return get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ToolDefinitionError(
            f"{where}: a type hint cannot be resolved: {error}: define the type at the top of the module"
        ) from error


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


def _with_description(hint: Any, description: str | None) -> Any:
    """Adds a description to the hint; one in `Annotated`, as Meta or as a string, wins over the docstring's."""
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.description is not None:
            return hint
        if isinstance(meta, str):
            description = meta
    return Annotated[hint, msgspec.Meta(description=description)] if description else hint


def _check_default(parameter: inspect.Parameter, hint: Any, where: str) -> Any:
    """The default as JSON."""
    try:
        default = msgspec.to_builtins(parameter.default, str_keys=True)
        msgspec.convert(default, hint, str_keys=True)
    except (TypeError, msgspec.ValidationError) as error:
        advice = f": write {parameter.name}: … | None = None" if parameter.default is None else ""
        raise ToolDefinitionError(
            f"{where}: the default of {parameter.name!r} does not fit its hint: {_line(error)}{advice}"
        ) from error
    return default


# --- schemas


def _build(
    name: str, fields: list[tuple[str, Any, Any]], where: str
) -> tuple[type[msgspec.Struct], dict[str, Any]]:
    for field, hint, _ in fields:
        try:
            msgspec.json.schema(hint, schema_hook=file_schema)
            msgspec.json.Decoder(hint)
        except (TypeError, NameError, RecursionError, NotImplementedError) as error:
            raise ToolDefinitionError(
                f"{where}: parameter {field!r} has a type that JSON cannot carry: {_line(error)}:"
                " use str, int, float, bool, list, dict, Literal, Enum, a dataclass or msgspec.Struct"
            ) from error
    model = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    (reference,), components = msgspec.json.schema_components([model], schema_hook=file_schema)
    schema = components.pop(reference["$ref"].removeprefix("#/$defs/"))
    if components:
        schema["$defs"] = components
    return model, _plain(schema)


def _output_schema(hint: Any) -> dict[str, Any] | None:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint is None or hint is Any:
        return None
    if hint in (bytes, bytearray, memoryview):
        hint = File  # the executor makes files of bytes
    try:
        return _plain(msgspec.json.schema(hint, schema_hook=file_output_schema))
    except (TypeError, NameError, RecursionError, NotImplementedError):
        return None  # not JSON by itself: the executor sends its text


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Removes titles, which are class names, and OpenAPI's discriminators."""
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("title", "discriminator"):
            continue
        if key in ("properties", "$defs"):
            plain[key] = {name: _plain(inner) for name, inner in value.items()}
        elif key in ("anyOf", "prefixItems"):
            plain[key] = [_plain(inner) for inner in value]
        elif key in ("items", "additionalProperties", "propertyNames") and isinstance(value, dict):
            plain[key] = _plain(value)
        else:
            plain[key] = value
    return plain


def _line(error: Exception) -> str:
    # msgspec's last line names the type; what stands above it is advice for its own users.
    return str(error).strip().splitlines()[-1]
