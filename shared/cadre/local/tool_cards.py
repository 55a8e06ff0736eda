"""Cards of the tools in modules and files, read in a process of its own: importing them runs their authors' code."""

import contextlib
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from cadre.adapters.tool_entries import load_entry
from cadre.errors import SetupError
from cadre.protocol.cards import ToolCard

_TIMEOUT_SECONDS = 60.0


class ToolModule(msgspec.Struct, frozen=True):
    """The tools of one module or file, or why they are not known."""

    cards: list[ToolCard] = []
    problem: str = ""


def read_tool_cards(entries: Sequence[str]) -> list[ToolModule]:
    """The tools of each entry, as `load_entry` takes it. Nothing is served."""
    if not entries:
        return []
    command = [sys.executable, "-m", "cadre.local.tool_cards", *entries]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
        found = msgspec.json.decode(done.stdout, type=list[ToolModule])
    except subprocess.TimeoutExpired:
        problem = f"could not be imported within {_TIMEOUT_SECONDS:g} s"
    except msgspec.DecodeError:
        problem = f"could not be imported: the process ended with code {done.returncode}"
    else:
        return found
    return [ToolModule(problem=problem) for _ in entries]


def _module(entry: str) -> ToolModule:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return ToolModule([tool.card for tool in load_entry(entry)])
    except SetupError as error:
        return ToolModule(problem=str(error))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode([_module(entry) for entry in sys.argv[1:]]))
