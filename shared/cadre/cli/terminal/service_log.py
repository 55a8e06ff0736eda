"""Prints what services write, as lines on stderr with the service's name before them."""

from __future__ import annotations

import re
from zlib import crc32

import click

_COLOURS = ["cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_blue"]
_NATS_NAME = "nats"
_NATS_PROBLEM = re.compile(r"\[(WRN|ERR|FTL)\]|^died|^did not")
"""Lines of nats-server that are printed; the others go to its log file alone."""


class LogPrinter:
    """Prints each line behind its service's name, in the service's colour on a terminal."""

    def __init__(self) -> None:
        self._width = 8

    def __call__(self, name: str, line: str) -> None:
        if name == _NATS_NAME and not _NATS_PROBLEM.search(line):
            return
        self._width = max(self._width, len(name))
        prefix = click.style(f"{name:<{self._width}} |", fg=colour(name))
        click.echo(f"{prefix} {line}", err=True)


def colour(name: str) -> str:
    """A colour for the service, the same one every time."""
    return _COLOURS[crc32(name.encode()) % len(_COLOURS)]
