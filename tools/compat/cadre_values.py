"""Answers of Cadre in the same JSON as those of smolagents (`compat.smolagents_values`)."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PYTHON = FOLDER.parents[1] / "build" / "compat-venv" / "bin" / "python"
"""The environment that smolagents is installed in, and Pillow; `make compat` makes it."""

Fetch = Callable[[str], bytes]
"""The bytes of a `blob:` reference."""


def tagged(value: Any, fetch: Fetch) -> Any:
    """Return what a run of Cadre answers: JSON with tagged values (docs/code-agents.md)."""
    match value:
        case list():
            return [tagged(item, fetch) for item in value]
        case {"$given": ["float" | "complex" | "fraction" as form, str(text)]}:
            return {form: text}
        case {"$given": ["int", str(digits)]}:
            return int(digits)
        case {"$given": ["timedelta", str(text)]}:
            days, _, seconds = text.removeprefix("P").removesuffix("S").partition("DT")
            return {"timedelta": int(days) * 86_400 + float(seconds)}
        case {"$given": ["tuple" | "frozenset", list(items)]}:
            return [tagged(item, fetch) for item in items]
        case {"$given": ["dict", list(pairs)]}:
            return {"dict": [[tagged(part, fetch) for part in pair] for pair in pairs]}
        case {"$given": ["json", str(ref)]}:
            return tagged(json.loads(fetch(ref)), fetch)
        case {"$given": ["bytes", str(ref)]}:
            return {"bytes": fetch(ref).hex()}
        case {"$given": ["table", str(ref), *_]}:
            return {"table": fetch(ref).decode()}
        case {"$given": ["image", str(ref), *_]}:
            return _picture(fetch(ref))
        case dict():
            return {key: tagged(item, fetch) for key, item in value.items()}
    return value


def _picture(png: bytes) -> Any:
    command = [PYTHON, FOLDER / "smolagents_values.py"]
    return json.loads(subprocess.run(command, input=png, capture_output=True, check=True).stdout)
