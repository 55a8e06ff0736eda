"""Structs as people fill them: the keys that there are, what does not fit, and a check of what Python makes."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect

from cadre.errors import SpecError, UnknownOption
from cadre.options import unknown_option

S = TypeVar("S", bound=msgspec.Struct)

_SENTENCE = re.compile(
    r"(?P<problem>Object (?P<kind>contains unknown|missing required) field `(?P<key>.*?)`|.*?)"
    r"(?: - at `(?P<place>[^`]*)`)?",
    re.DOTALL,
)


_SECTION = re.compile(r"\n\s*(?:Args|Attributes|Returns|Raises|Examples):\n")


def prose_of(docstring: str) -> str:
    """Return a docstring as schemas show it: on one line, without its sections."""
    return " ".join(_SECTION.split(docstring, maxsplit=1)[0].split())


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


def known_keys(kind: type[msgspec.Struct]) -> dict[str, tuple[str, ...]]:
    """The keys that may stand in each section of a document of this kind, by the section's place (`spec.limits`);
    `*` in a place is any key or item there."""
    return {place: _keys(section) for place, section in _sections_of(kind).items()}


@lru_cache
def _keys(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def _sections_of(kind: type[msgspec.Struct], place: str = "") -> dict[str, type[msgspec.Struct]]:
    """Return the structs in a struct, itself first, by their places as `known_keys` has them."""
    found = {place: kind}
    for field in msgspec.structs.fields(kind):
        for one, below in _sections(field.type):
            if one is not kind:
                found |= _sections_of(one, f"{place}.{field.encode_name}{below}".lstrip("."))
    return found


def _sections(written: Any, below: str = "") -> Iterator[tuple[type[msgspec.Struct], str]]:
    """The structs in a field's type, each with what stands in its place below the field."""
    if isinstance(written, type) and issubclass(written, msgspec.Struct):
        yield written, below
    many = get_origin(written) in (dict, list)
    for one in get_args(written):
        yield from _sections(one, f"{below}.*" if many else below)


def sections_at(data: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield what stands at a place of a document as `known_keys` names it, each with its own place; items of a list
    have the list's.
    """
    found = [("", data)]
    for key in filter(None, place.split(".")):
        below = [item for at, many in found for item in _items(at, many)]
        found = [(at, one) for at, name, one in below if key in ("*", name)]
    yield from found


def _items(at: str, data: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(data, dict):
        yield from ((f"{at}.{name}".lstrip("."), name, one) for name, one in data.items())
    elif isinstance(data, list):
        yield from ((at, None, one) for one in data)


class Checked(msgspec.StructMeta):
    """Checks a struct that Python makes as one that is read from a file: its keys, their types, and mappings in the
    place of structs. What is read from JSON is made without it."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            if not args and not fields:
                return super().__call__()
            names = cls.__match_args__  # those that may stand without their names
            if len(args) > len(names):
                known = ", ".join(_keys(cls))
                raise UnknownOption(f"{cls.__name__} takes its options by name, not {args[-1]!r}: {known}")
            return made(cls, {**dict(zip(names, args, strict=False)), **fields})

    def read(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields in JSON types with what people may write instead replaced. Raises SpecError."""
        return fields


def made(kind: type[S], fields: Mapping[str, Any]) -> S:
    """Return the struct of these fields, in Python's types or JSON's. Raises SpecError, which names the struct and the
    field; for a key that does not exist it lists those that do."""
    name = kind.__name__
    try:
        given = as_written(dict(fields))
    except SpecError as error:
        raise SpecError(error.problem, key=f"{name}.{error.key}") from error
    for place, section in _checked_sections(kind).items():
        known = _keys(section)
        for _, found in sections_at(given, place):
            for key in found if isinstance(found, dict) else ():
                if key not in known:
                    raise unknown_option(section.__name__, str(key), known)
    try:
        read = kind.read(given) if isinstance(kind, Checked) else given
        return msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        if misfit.missing:
            where = f"{name}.{misfit.place}".rstrip(".")
            raise SpecError(f"write {misfit.missing} as well", key=where) from error
        raise SpecError(
            f"{misfit.lower}{choices_at(kind, misfit.place)}", key=f"{name}.{misfit.place}".rstrip(".")
        ) from error
    except SpecError as error:
        raise SpecError(error.problem, key=f"{name}.{error.key}".rstrip(".")) from error


@lru_cache
def _checked_sections(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    again = {
        f"{field.encode_name}{below}": one
        for field in msgspec.structs.fields(kind)
        for one, below in _sections(field.type)
        if one is kind
    }
    return _sections_of(kind) | again


def choices_at(kind: type[msgspec.Struct], place: str) -> str:
    """Return the end of an error that names the values of the literal at a place; "" where there is no literal."""
    choices = _choices(shape_of(kind), place)
    return f"; write {', '.join(map(repr, choices))}" if choices else ""


def _choices(shape: inspect.Type, place: str) -> list[Any]:
    """Return the values of a literal at this place; [] for anything else."""
    match shape:
        case inspect.LiteralType(values=values) if not place:
            return [*values]
        case inspect.UnionType(types=several):
            return [one for part in several for one in _choices(part, place)]
        case inspect.Metadata(type=inner):
            return _choices(inner, place)
        case inspect.StructType(fields=fields) if place:
            key, _, rest = place.partition(".")
            return next((_choices(one.type, rest) for one in fields if one.encode_name == key), [])
    return []


@lru_cache
def shape_of(kind: type[msgspec.Struct]) -> inspect.Type:
    """Return the type of a struct as msgspec reads it."""
    return inspect.type_info(kind)


def as_written(value: Any) -> Any:
    """Return a value of Python as a file has it. Raises SpecError, with the key in a struct or mapping, for what no
    file could hold."""
    try:
        return msgspec.to_builtins(_without_lengths(value), enc_hook=_as_text)
    except _NoFileHolds as error:
        named = value if isinstance(value, Mapping) else _fields_of(value)
        key = next((name for name, one in named.items() if _is_strange(one)), "")
        raise SpecError(f"{error}: no file could hold it", key=str(key)) from error


class _NoFileHolds(TypeError):
    """A value is of a type that no file has."""


def _fields_of(value: Any) -> dict[str, Any]:
    names = getattr(value, "__struct_fields__", ())
    return {name: getattr(value, name) for name in names}


def _is_strange(value: Any) -> bool:
    try:
        msgspec.to_builtins(_without_lengths(value), enc_hook=_as_text)
    except _NoFileHolds:
        return True
    return False


def _without_lengths(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {key: _without_lengths(one) for key, one in value.items()}
    return [*map(_without_lengths, value)] if isinstance(value, list | tuple) else value


def _as_text(value: object) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise _NoFileHolds(f"{type(value).__name__} {value!r}")
