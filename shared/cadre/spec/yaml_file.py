"""Read YAML files that people write; each error is one line that names the file and the misfit."""

from collections.abc import Callable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from cadre.errors import SetupError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Wrong syntax, a date that no calendar has, nesting without end.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


_BOOL, _TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"


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
    """Read the file. Raises `wrong` with one line."""
    return _read(file, wrong, _document)


def read_yaml_documents(file: Path, wrong: type[SetupError]) -> list[Any]:
    """Read a file of several documents, without empty ones. Raises `wrong` with one line."""
    found = _read(file, wrong, lambda text: list(yaml.load_all(text, Loader=_UniqueKeys)))
    return [document for document in found if document is not None]


def parse_yaml(text: str, source: str, wrong: type[SetupError]) -> Any:
    """Read what `source` has given. Raises `wrong` with one line that names it."""
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


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(getattr(error, "problem", None) or error).split())
    return text if mark is None else f"line {mark.line + 1}: {text}"
