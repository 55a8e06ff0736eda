"""Reads a YAML file that a person wrote: whatever is wrong with it is one line that names the file."""

from __future__ import annotations

from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

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
    """What the file holds. Raises `wrong`."""
    try:
        return yaml.load(file.read_text("utf-8"), Loader=_UniqueKeys)
    except OSError as error:
        raise wrong(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise wrong(f"{file}: is not UTF-8 text") from error
    except _NOT_YAML as error:
        raise wrong(f"{file}: not YAML: {_problem(error)}") from error


def _problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(getattr(error, "problem", None) or error).split())
    return text if mark is None else f"line {mark.line + 1}: {text}"
