"""Reads the files that `cadre runs export` writes."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.delivery.codec import decode
from cadre.errors import UnreadableMessage
from cadre.journal.entry import Entry
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.loop.redecide import Journaled


class ExportedEntry(NamedTuple):
    tree: str
    seq: int
    data: bytes
    """The entry as its journal held it."""


class _ExportLine(msgspec.Struct):
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
                record = msgspec.json.decode(text, type=_ExportLine)
                if number == 0 and record.format != "cadre-run":
                    raise CommandFailed(f"{file} was not written by `cadre runs export`", ExitCode.USAGE)
                tree, last = tree or record.tree, record.line
                if record.line == "entry":
                    yield ExportedEntry(tree, record.seq, bytes(record.entry))
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
    if last != "end":
        raise CommandFailed(f"{file} was cut off: export the run again", ExitCode.USAGE)


class ExportedTree(NamedTuple):
    """An exported run with those below it."""

    id: str
    journals: dict[str, list[Journaled]]
    """Each run's entries, by its id, in their order."""


def read_exported_run(file: Path) -> ExportedTree:
    """The journals in the file. Raises CommandFailed for a file that is no whole export."""
    tree = ""
    journals: dict[str, list[Journaled]] = {}
    for exported in exported_entries(file):
        try:
            entry: Entry = decode(exported.data, Entry)
        except UnreadableMessage as error:
            raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
        tree = exported.tree
        journals.setdefault(entry.run, []).append(Journaled(exported.seq, entry))
    return ExportedTree(tree, journals)
