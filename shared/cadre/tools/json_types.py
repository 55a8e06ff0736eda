"""Python types as JSON: the schema of a type hint, and values of that type from JSON.

A hint is read by pydantic where it is installed, and by msgspec where it is not, or where the hint is msgspec's own.
"""

import json
import re
import types
import warnings
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
)
from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from cadre.errors import SpecError
from cadre.spec.answer_schema import Schema
from cadre.spec.schema_form import offered
from cadre.structs import misfit_of
from cadre.tools.files import File, file_output_schema, file_schema

_ITERATED = {Iterable, Collection, Iterator, Generator, AsyncIterable, AsyncIterator, AsyncGenerator}
"""Hints of what is passed and returned as a list."""

_BYTES = (bytes, bytearray, memoryview)
_MOST_NAMED = 3
"""Misfits of one argument that an error names."""


class NotOffered(Exception):
    """A type that JSON cannot carry; the text says why."""


class Unfit(ValueError):
    """A value that does not fit its type. `place` is where, like `.at.x`; empty for the value itself."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem)
        self.place = place


class JsonType(ABC):
    """A type hint as JSON. `schema` is self-contained."""

    schema: Schema

    @abstractmethod
    def load(self, value: Any, files: list[File]) -> Any:
        """Convert a JSON value to the type, and append the files in it to `files`. Types are strict: "3" is no
        integer. Raises Unfit."""

    @abstractmethod
    def dump(self, value: Any) -> Any:
        """Return the JSON value of a Python value. Raises TypeError or ValueError."""


def read_type(hint: Any, *, output: bool = False) -> JsonType:
    """Read a type hint. Raises NotOffered.

    Args:
        output: The schema is to describe what is returned, rather than what is taken.
    """
    seen = _seen(hint)
    if any(get_origin(one) is type or one is type for one in seen):
        raise NotOffered("a class is no JSON value")
    orders: list[list[Any]] = [values for values in map(_choices, seen) if values]
    readers: list[Callable[..., JsonType]] = [_PydanticType, _MsgspecType]
    if any(map(_is_of_msgspec, seen)):
        readers.reverse()
    problems: list[str] = []
    for reader in readers:
        try:
            return reader(hint, output, orders)
        except NotOffered as error:
            problems.append(str(error))
    raise NotOffered(next(filter(None, problems), "it is no type that JSON knows"))


def loaded(kind: JsonType, value: Any, files: list[File]) -> Any:
    """Convert a JSON value to the type, 5.0 to an integer too, and append the files in it to `files`. Raises Unfit."""
    found: list[File] = []
    try:
        result = kind.load(value, found)
    except Unfit as error:
        found.clear()
        try:
            result = kind.load(_with_whole_numbers(value), found)
        except Unfit:
            raise error from None
    files += found
    return result


def _with_whole_numbers(value: Any) -> Any:
    """Replace numbers like 5.0 by integers, which JSON does not tell apart."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def answer_type(output_type: Any) -> JsonType:
    """Return the type of an agent's answers as JSON has it. Raises SpecError for a type that JSON cannot carry."""
    try:
        return read_type(output_type)
    except NotOffered as error:
        raise SpecError(f"{output_type!r}: {error}", key="output_type") from error


def as_answer(output: Any, output_type: Any) -> Any:
    """Return an answer in JSON types as its type. Raises SpecError, and Unfit, which is a ValueError, for an answer
    that does not fit."""
    return loaded(answer_type(output_type), output, [])


def lists_for_iterators(hint: Any) -> Any:
    """Return the hint with a list for each iterable and iterator in it, and `Any` for `object`."""
    if hint is object:
        return Any
    if hint in _ITERATED:
        return list
    arguments = get_args(hint)
    origin = get_origin(hint)
    if origin in _ITERATED:
        return list[lists_for_iterators(arguments[0])]  # type: ignore[misc]
    return _with_arguments(hint, [*map(lists_for_iterators, arguments)]) if _is_nested(hint) else hint


# --- what a hint is made of


def _is_nested(hint: Any) -> bool:
    return bool(get_args(hint)) and get_origin(hint) is not Literal and not isinstance(hint, type(Callable[[], int]))


def _with_arguments(hint: Any, arguments: list[Any]) -> Any:
    """Return a generic hint with other arguments. Metadata of `Annotated` stay."""
    origin = get_origin(hint)
    if origin is Annotated:
        return Annotated[(arguments[0], *hint.__metadata__)]
    if [*get_args(hint)] == arguments:
        return hint
    if origin in (Union, types.UnionType):
        return Union[tuple(arguments)]  # noqa: UP007 - of a tuple
    if hasattr(hint, "copy_with"):
        return hint.copy_with(tuple(arguments))
    return origin[tuple(arguments)] if origin is not None else hint


def _seen(hint: Any) -> list[Any]:
    """Return all hints, classes and metadata of `Annotated` that the hint consists of."""
    found: list[Any] = []
    waiting = [hint]
    while waiting:
        one = waiting.pop(0)
        if any(one is known for known in found):
            continue
        found.append(one)
        if get_origin(one) is Literal:
            continue
        waiting += [part for part in get_args(one) if not isinstance(part, list)]
        waiting += getattr(one, "__metadata__", ())
        waiting += _fields(get_origin(one) or one)
    return found


def _fields(kind: Any) -> list[Any]:
    """Return the hints of the fields of a class."""
    named = hasattr(kind, "_fields") or hasattr(kind, "__struct_fields__") or hasattr(kind, "model_fields")
    if not isinstance(kind, type) or not (named or is_dataclass(kind) or is_typeddict(kind)):
        return []
    try:
        return [*get_type_hints(kind, include_extras=True).values()]
    except (NameError, AttributeError, TypeError):
        return []  # the library that reads the hint says what is wrong with it


def _is_of_msgspec(part: Any) -> bool:
    return isinstance(part, msgspec.Meta) or (isinstance(part, type) and issubclass(part, msgspec.Struct))


def _choices(part: Any) -> list[Any]:
    """Return the values of an enumeration in the order in which they are declared."""
    if get_origin(part) is Literal:
        return [*get_args(part)]
    if isinstance(part, type) and issubclass(part, Enum):
        return [member.value for member in part]
    return []


# --- by pydantic


class _PydanticType(JsonType):
    def __init__(self, hint: Any, output: bool, orders: list[list[Any]]) -> None:
        try:
            from pydantic import PydanticUserError, TypeAdapter
            from pydantic.json_schema import GenerateJsonSchema
        except ImportError as error:
            raise NotOffered("") from error

        class Generator(GenerateJsonSchema):
            def field_title_should_be_set(self, schema: Any) -> bool:
                return False

            def enum_schema(self, schema: Any) -> dict[str, Any]:
                made = super().enum_schema(schema)
                return _of_flags(schema["cls"]) if issubclass(schema["cls"], Flag) else made

            def bytes_schema(self, schema: Any) -> dict[str, Any]:
                return file_output_schema(File) if output else super().bytes_schema(schema)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._adapter = TypeAdapter(_for_pydantic(hint, ()))
                mode: Literal["serialization", "validation"] = "serialization" if output else "validation"
                schema = self._adapter.json_schema(mode=mode, schema_generator=Generator)
        except (PydanticUserError, TypeError, NameError, AttributeError, RecursionError) as error:
            raise NotOffered(_first_line(error)) from error
        self.schema = offered(schema, orders, _name_of(hint))

    def load(self, value: Any, files: list[File]) -> Any:
        from pydantic import ValidationError

        try:
            text = json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            text = None
        try:
            if text is None:
                return self._adapter.validate_python(value, context=files)
            return self._adapter.validate_json(text, strict=True, context=files)
        except ValidationError as error:
            raise _unfit(error) from error

    def dump(self, value: Any) -> Any:
        return self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)


def _for_pydantic(hint: Any, within: tuple[Any, ...]) -> Any:
    """Return the hint as pydantic understands it: with the metadata of msgspec, plain descriptions and, before Python
    3.12, `typing.TypedDict` in its own terms."""
    if get_origin(hint) is Annotated:
        inner = _for_pydantic(get_args(hint)[0], within)
        return Annotated[(inner, *map(_metadata, hint.__metadata__))]
    if is_typeddict(hint) and type(hint).__module__ == "typing":
        if hint in within:
            raise TypeError(f"{hint.__name__} refers to itself")
        from typing import NotRequired

        from typing_extensions import TypedDict

        found = get_type_hints(hint, include_extras=True)
        inner = {name: _for_pydantic(one, (*within, hint)) for name, one in found.items()}
        optional = {
            name: one if _is_marked(one) or name in hint.__required_keys__ else NotRequired[one]
            for name, one in inner.items()
        }
        made = TypedDict(hint.__name__, optional)  # type: ignore[misc]
        made.__doc__ = hint.__doc__
        return made
    if not _is_nested(hint):
        return hint
    return _with_arguments(hint, [_for_pydantic(one, within) for one in get_args(hint)])


def _is_marked(hint: Any) -> bool:
    return getattr(get_origin(hint), "_name", "") in ("Required", "NotRequired")


def _metadata(one: Any) -> Any:
    from pydantic import Field

    if isinstance(one, str):
        return Field(description=one)
    if not isinstance(one, msgspec.Meta):
        return one
    names = (
        "gt",
        "ge",
        "lt",
        "le",
        "multiple_of",
        "min_length",
        "max_length",
        "pattern",
        "title",
        "description",
    )
    said = {name: getattr(one, name) for name in names if getattr(one, name) is not None}
    if one.examples:
        said["examples"] = one.examples
    return Field(**said, json_schema_extra=one.extra_json_schema)


def _of_flags(kind: type[Flag]) -> Schema:
    names = ", ".join(f"{member.value} = {member.name}" for member in kind)
    return {"type": "integer", "minimum": 0, "description": f"A sum of: {names}."}


def _unfit(error: Any) -> Unfit:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for number, one in enumerate(found[:_MOST_NAMED]):
        place = "".join(f".{part}" for part in one["loc"])
        message = one["msg"][:1].lower() + one["msg"][1:]
        lines.append(f"{place.lstrip('.')}: {message}" if number and place else message)
    more = f" (and {len(found) - _MOST_NAMED} more)" if len(found) > _MOST_NAMED else ""
    return Unfit("".join(f".{part}" for part in found[0]["loc"]), "; ".join(lines) + more)


# --- by msgspec


class _MsgspecType(JsonType):
    def __init__(self, hint: Any, output: bool, orders: list[list[Any]]) -> None:
        self._hint = hint
        self._inner: dict[Any, JsonType] = {}

        def schema_of(kind: Any) -> Schema:
            if kind is File:
                return file_output_schema(kind) if output else file_schema(kind)
            if isinstance(kind, type) and issubclass(kind, PurePath):
                return {"type": "string", "format": "path"}
            self._inner[kind] = _PydanticType(kind, output, orders)
            return self._inner[kind].schema

        try:
            schema = msgspec.json.schema(hint, schema_hook=schema_of)
            msgspec.json.Decoder(hint)
        except (TypeError, NameError, AttributeError, RecursionError) as error:
            raise NotOffered(_first_line(error)) from error
        self.schema = offered(_with_files(schema) if output else schema, orders, _name_of(hint))

    def load(self, value: Any, files: list[File]) -> Any:
        def of_json(kind: Any, part: Any) -> Any:
            if kind is File:
                files.append(File.from_json(part))
                return files[-1]
            if kind in self._inner:
                return self._inner[kind].load(part, files)
            return kind(part)

        try:
            return _with_defaults(msgspec.convert(value, self._hint, str_keys=True, dec_hook=of_json))
        except msgspec.ValidationError as error:
            misfit = misfit_of(error)
            raise Unfit(misfit.place and f".{misfit.place}", misfit.lower) from error

    def dump(self, value: Any) -> Any:
        def as_json(part: Any) -> Any:
            inner = self._inner.get(type(part))
            return inner.dump(part) if inner is not None else str(part)

        return msgspec.to_builtins(value, str_keys=True, enc_hook=as_json)


def _with_defaults(value: Any) -> Any:
    """Set defaults of dataclass fields on the objects: msgspec leaves them to the class, where encoders miss them."""
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _with_defaults(item)
    elif isinstance(value, dict):
        for item in value.values():
            _with_defaults(item)
    elif is_dataclass(value):
        for field in fields(value):
            held = _with_defaults(getattr(value, field.name))
            if field.name not in getattr(value, "__dict__", (field.name,)):
                object.__setattr__(value, field.name, held)
    return value


def _with_files(schema: Any) -> Any:
    """Return the schema of a result, in which files stand for bytes."""
    if isinstance(schema, list):
        return [*map(_with_files, schema)]
    if not isinstance(schema, dict):
        return schema
    if schema.get("contentEncoding") == "base64":
        return file_output_schema(File)
    return {key: _with_files(value) for key, value in schema.items()}


def _name_of(hint: Any) -> str:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return getattr(hint, "__name__", "")


def _first_line(error: BaseException) -> str:
    # pydantic's advice stands below its first line; msgspec's last line names the type.
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[-1] if "msgspec" in type(error).__module__ or isinstance(error, TypeError) else lines[0]
    return re.sub(r"\.? Set `arbitrary_types_allowed.*", "", line)
