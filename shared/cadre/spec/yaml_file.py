"""Read YAML files that people write; each error is one line that names the file and the misfit."""

import re
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
import yaml

from cadre.errors import SetupError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Wrong syntax, a date that no calendar has, nesting without end.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


_BOOL, _TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"

_SENTENCE = re.compile(
    r"(?P<problem>Object (?P<kind>contains unknown|missing required) field `(?P<key>.*?)`|.*?)"
    r"(?: - at `(?P<place>[^`]*)`)?",
    re.DOTALL,
)


class _UniqueKeys(_Loader):  # type: ignore[misc]
    """Refuses a key that stands twice in a mapping, of which YAML would silently drop the first, and takes the keys
    yes, no, on and off as the texts that they are."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} stands there twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
            if key.tag == _BOOL:
                key.tag = _TEXT
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def read_yaml(file: Path | Traversable, wrong: type[SetupError]) -> Any:
    """Reads the file. Raises `wrong` with one line."""
    return _read(file, wrong, _document)


def read_yaml_documents(file: Path, wrong: type[SetupError]) -> list[Any]:
    """Reads a file of several documents, without empty ones. Raises `wrong` with one line."""
    found = _read(file, wrong, lambda text: list(yaml.load_all(text, Loader=_UniqueKeys)))
    return [document for document in found if document is not None]


def parse_yaml(text: str, source: str, wrong: type[SetupError]) -> Any:
    """Reads what `source` has given. Raises `wrong` with one line that names it."""
    return _parsed(text, source, wrong, _document)


def _document(text: str) -> Any:
    return yaml.load(text, Loader=_UniqueKeys)


def _read(file: Path | Traversable, wrong: type[SetupError], load: Callable[[str], Any]) -> Any:
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise wrong(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise wrong(f"{file}: is not UTF-8 text") from error
    return _parsed(text, str(file), wrong, load)


def _parsed(text: str, source: str, wrong: type[SetupError], load: Callable[[str], Any]) -> Any:
    try:
        return load(text)
    except _NOT_YAML as error:
        raise wrong(f"{source}: not YAML: {_problem(error)}") from error


def known_keys(kind: type[msgspec.Struct], place: str = "") -> dict[str, tuple[str, ...]]:
    """The keys that may stand in each section of a document of this kind, by the section's place (`spec.limits`);
    `*` in a place is any key or item there."""
    fields = msgspec.structs.fields(kind)
    keys = {place: tuple(field.encode_name for field in fields)}
    for field in fields:
        for one, below in _sections(field.type):
            if one is not kind:
                keys |= known_keys(one, f"{place}.{field.encode_name}{below}".lstrip("."))
    return keys


def _sections(written: Any, below: str = "") -> Iterator[tuple[type[msgspec.Struct], str]]:
    """The structs in a field's type, each with what stands in its place below the field."""
    if isinstance(written, type) and issubclass(written, msgspec.Struct):
        yield written, below
    many = get_origin(written) in (dict, list)
    for one in get_args(written):
        yield from _sections(one, f"{below}.*" if many else below)


def sections_at(data: Any, place: str) -> Iterator[tuple[str, Any]]:
    """What stands at a place of a document as `known_keys` names it, each with its own place; items of a list have
    the list's."""
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


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(getattr(error, "problem", None) or error).split())
    return text if mark is None else f"line {mark.line + 1}: {text}"


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
