"""The next version of Cadre: this one with a higher schema version, so that upgrades can be tried before they exist."""

import os
import shutil
from pathlib import Path

from cadre.protocol.messages import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]

NEXT = SCHEMA_VERSION + 1

_CHANGES = {
    "shared/cadre/protocol/messages.py": (
        (
            f"SCHEMA_VERSION: Literal[{SCHEMA_VERSION}] = {SCHEMA_VERSION}\n",
            f"SCHEMA_VERSION: Literal[{NEXT}] = {NEXT}\n",
        ),
        (f"    v: Literal[{SCHEMA_VERSION}] =", f"    v: Literal[{NEXT}] ="),
    ),
    "shared/cadre/journal/entry.py": ((f"    v: Literal[{SCHEMA_VERSION}] =", f"    v: Literal[{NEXT}] ="),),
    "shared/cadre/delivery/codec.py": (
        (
            "Callable[[Fields], Fields]] = {}",
            f"Callable[[Fields], Fields]] = {{{SCHEMA_VERSION}: lambda message: message}}",
        ),
    ),
}


def next_version(folder: Path) -> dict[str, str]:
    """Writes its code into the folder; returns the environment of a process that runs it."""
    for room in ("shared", "services"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in _CHANGES.items():
        text = (folder / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{name} does not hold {old!r} once"
            text = text.replace(old, new)
        (folder / name).write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(folder / "shared"), str(folder / "services")])}
