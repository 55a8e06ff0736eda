"""Print what models, tools and code wrote, as text and in columns, without control codes for the terminal; print
status lines on stderr."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from cadre.protocol.files import is_blob_ref
from cadre.protocol.tagged import for_people
from cadre.views.words import brief

_MEDIA_TYPES = {
    "image": "image/png",
    "table": "text/csv",
    "array": "application/x-npy",
    "json": "application/json",
}


def as_text(output: Any) -> str:
    """Text unchanged, anything else as JSON.

    Files in it are named in words; commands that download them follow below.
    """
    value, downloads = _describe_files(for_people(output))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return "\n".join([text, *downloads])


_OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""Characters that move the cursor, change colours or order, or begin a command to the terminal."""


def print_text(text: str, *, err: bool = False) -> None:
    """Print a text that others wrote, into a pipe or file as well: what comes out of it may reach a terminal later."""
    click.echo(printable(text), err=err)


def printable(text: str) -> str:
    """Return the text with a mark for each character that a terminal would obey."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)


def size_text(size: int) -> str:
    """Return a size in bytes in few characters: 950 B, 12.3 kB, 4.0 MB."""
    for unit, letter in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {letter}"
    return f"{size} B"


def _describe_files(value: Any) -> tuple[Any, list[str]]:
    """Return the value with each file in it replaced by a few words, and the commands that download these files."""
    commands: list[str] = []

    def described(part: Any) -> Any:
        if isinstance(part, list):
            return [described(item) for item in part]
        if not isinstance(part, dict):
            return part
        match part:
            case {"$file": {"ref": str(ref), **about}} if len(part) == 1 and is_blob_ref(ref):
                name = str(about.get("name") or "")
                commands.append(_download_command(ref, name))
                size = about.get("size")
                of_size = f", {size_text(size)}" if isinstance(size, int) else ""
                return f"{name or 'file'} ({about.get('media_type') or 'unknown type'}{of_size})"
            case {"$given": [str(form), str(ref), *_]} if len(part) == 1 and is_blob_ref(ref):
                commands.append(_download_command(ref, ""))
                return f"{form} ({_MEDIA_TYPES.get(form, 'bytes')})"
        return {key: described(item) for key, item in part.items()}

    return described(value), list(dict.fromkeys(commands))


def _download_command(ref: str, name: str) -> str:
    target = shlex.quote(name.rpartition("/")[2]) if name and name.isprintable() else "FILE"
    return f"cadre files {ref} -o {target}"


def print_status(line: str) -> None:
    """Print the line on stderr. If the reader is gone, this and all later output is discarded."""
    try:
        click.echo(line, err=True)
    except OSError:
        discard_output()


def discard_output() -> None:
    """Send stdout and stderr nowhere from now on: neither writing to them nor closing them fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text of a table, its columns as wide as their widest cell; on a terminal the last column is cut at the edge."""
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers) - 1)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return "\n".join(_line(line, widths, edge) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], edge: int | None) -> str:
    head = "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=False))
    last = cells[-1]
    if edge is not None:
        last = brief(last, max(edge - len(head), 10))
    return printable((head + last).rstrip())


def moment(at: float) -> str:
    """Return a time in this machine's zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
