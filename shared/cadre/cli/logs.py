"""`cadre logs`: the files that `cadre up` keeps of what its services wrote."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TextIO

import click

from cadre.cli.terminal.service_log import colour
from cadre.local import local_stack
from cadre.local.exit_codes import CommandFailed, ExitCode

_POLL_SECONDS = 0.3
"""Seconds between two looks at a followed file."""


@click.command("logs")
@click.argument("service", required=False)
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with what is written from now on.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True, help="Last lines of each."
)
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of `cadre up`.  [default: .cadre]")
def command(service: str | None, following: bool, lines: int, data: Path | None) -> None:
    """Show the log of SERVICE, or of all services."""
    files = _files(local_stack.logs_folder(data or local_stack.default_data()), service)
    width = max(len(name) for name in files)
    opened: dict[str, TextIO] = {}
    for name, file in files.items():
        opened[name] = file.open(errors="replace")
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
        raise CommandFailed(
            f"there is no log of {service!r}; there are: {', '.join(files)}", ExitCode.NOT_FOUND
        )
    return {service: files[service]}


def _print(name: str, line: str, width: int) -> None:
    prefix = click.style(f"{name:<{width}} | ", fg=colour(name)) if width else ""
    click.echo(prefix + line.rstrip("\n"))
