"""Reads the file of an exported run, entry by entry."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.local.exit_codes import CommandFailed, ExitCode


class ExportedEntry(NamedTuple):
    """One journal entry of the file, as its journal held it."""

    tree: str
    seq: int
    data: bytes


class _Line(msgspec.Struct):
    line: str = ""
    """What the line holds: `entry`, `end`, or something that does not matter here."""
    seq: int = 0
    entry: msgspec.Raw = msgspec.Raw(b"null")
    format: str = ""
    tree: str = ""


def exported_entries(file: Path) -> Iterator[ExportedEntry]:
    """Yields the entries in the order of their stream. Raises CommandFailed for a file that is no whole export."""
    tree, last = "", ""
    try:
        with gzip.open(file) as stream:
            for number, text in enumerate(stream):
                record = msgspec.json.decode(text, type=_Line)
                if number == 0 and record.format != "cadre-run":
                    raise CommandFailed(f"{file} was not written by `cadre runs export`", ExitCode.USAGE)
                tree, last = tree or record.tree, record.line
                if record.line == "entry":
                    yield ExportedEntry(tree, record.seq, bytes(record.entry))
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
    if last != "end":
        raise CommandFailed(f"{file} was cut off: export the run again", ExitCode.USAGE)
