"""Reads YAML files that people write; each error is one line that names the file."""

from collections.abc import Callable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml

from cadre.errors import SetupError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Wrong syntax, a date that no calendar has, nesting without end.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


class _UniqueKeys(_Loader):  # type: ignore[misc]
    """Refuses a key that stands twice in a mapping: YAML would silently drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} stands there twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def read_yaml(file: Path | Traversable, wrong: type[SetupError]) -> Any:
    """Reads the file. Raises `wrong` with one line."""
    return _read(file, wrong, lambda text: yaml.load(text, Loader=_UniqueKeys))


def read_yaml_documents(file: Path, wrong: type[SetupError]) -> list[Any]:
    """Reads a file of several documents, without empty ones. Raises `wrong` with one line."""
    found = _read(file, wrong, lambda text: list(yaml.load_all(text, Loader=_UniqueKeys)))
    return [document for document in found if document is not None]


def _read(file: Path | Traversable, wrong: type[SetupError], load: Callable[[str], Any]) -> Any:
    try:
        return load(file.read_text("utf-8"))
    except OSError as error:
        raise wrong(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise wrong(f"{file}: is not UTF-8 text") from error
    except _NOT_YAML as error:
        raise wrong(f"{file}: not YAML: {_problem(error)}") from error


def known_keys(kind: type[msgspec.Struct], place: str = "") -> dict[str, tuple[str, ...]]:
    """The keys that may stand in each section of a document of this kind, by the section's place (`spec.limits`)."""
    fields = msgspec.structs.fields(kind)
    keys = {place: tuple(field.encode_name for field in fields)}
    for field in fields:
        for one in (field.type, *get_args(field.type)):
            if isinstance(one, type) and issubclass(one, msgspec.Struct) and one is not kind:
                keys |= known_keys(one, f"{place}.{field.encode_name}".lstrip("."))
    return keys


def refused_key(error: msgspec.ValidationError) -> tuple[str, str]:
    """The key that a document was refused for (`spec.limits`; empty for the document itself), and what is wrong."""
    what, _, place = str(error).partition(" - at ")
    return place.strip("`").removeprefix("$").lstrip("."), what


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(getattr(error, "problem", None) or error).split())
    return text if mark is None else f"line {mark.line + 1}: {text}"
