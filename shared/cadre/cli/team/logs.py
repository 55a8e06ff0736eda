"""`cadre logs`: what the services of `cadre up` write, on the terminal as it comes and in files that are kept."""

import re
import time
from collections import deque
from pathlib import Path
from typing import TextIO
from zlib import crc32

import click

from cadre.adapters import local_stack
from cadre.cli.terminal.output import print_status, printable
from cadre.errors import CommandFailed, ExitCode

_COLOURS = ["cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_blue"]
_NATS_NAME = "nats"
_NATS_PROBLEM = re.compile(r"\[(WRN|ERR|FTL)\]|^died|^did not|^refuses")
"""Lines of nats-server that are printed; the others go to its log file alone."""

_POLL_SECONDS = 0.3
"""Seconds between two looks at a followed file."""


@click.command("logs")
@click.argument("service", required=False)
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with what is written from now on.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True, help="Last lines of each.")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of `cadre up`.  [default: .cadre]")
def command(service: str | None, following: bool, lines: int, data: Path | None) -> None:
    """Show the log of SERVICE, or of all services."""
    files = _files(local_stack.logs_folder(data or local_stack.default_data()), service)
    width = max(len(name) for name in files)
    opened: dict[str, TextIO] = {}
    for name, file in files.items():
        opened[name] = click.get_current_context().with_resource(file.open(errors="replace"))
        for line in deque(opened[name], maxlen=lines):
            _print(name, line, width if service is None else 0)
    while following:
        quiet = True
        for name, stream in opened.items():
            for line in stream:
                _print(name, line, width if service is None else 0)
                quiet = False
        if quiet:
            time.sleep(_POLL_SECONDS)


def _files(folder: Path, service: str | None) -> dict[str, Path]:
    files = {file.stem: file for file in sorted(folder.glob("*.log"))}
    if not files:
        raise CommandFailed(
            f"there are no logs in {folder}: start services with `cadre up`, or give --data",
            ExitCode.NOT_FOUND,
        )
    if service is None:
        return files
    if service not in files:
        raise CommandFailed(f"there is no log of {service!r}; there are: {', '.join(files)}", ExitCode.NOT_FOUND)
    return {service: files[service]}


def _print(name: str, line: str, width: int) -> None:
    prefix = click.style(f"{name:<{width}} | ", fg=_colour(name)) if width else ""
    click.echo(prefix + printable(line.rstrip("\n")))


class LogPrinter:
    """Prints each line behind its service's name, in the service's colour on a terminal."""

    def __init__(self) -> None:
        self._width = 8

    def __call__(self, name: str, line: str) -> None:
        if name == _NATS_NAME and not _NATS_PROBLEM.search(line):
            return
        self._width = max(self._width, len(name))
        prefix = click.style(f"{name:<{self._width}} |", fg=_colour(name))
        print_status(f"{prefix} {printable(line)}")


def _colour(name: str) -> str:
    """Return a colour for the service, the same one every time."""
    return _COLOURS[crc32(name.encode()) % len(_COLOURS)]
