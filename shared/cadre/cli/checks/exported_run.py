"""Reads the files that `cadre runs export` writes."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.delivery.codec import decode
from cadre.errors import UnreadableMessage
from cadre.journal.entry import Entry
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.loop.redecide import Journaled


class ExportedFile(msgspec.Struct):
    """A file of the run's workspace."""

    path: str
    ref: str | None = None
    by: str = ""


class ExportLine(msgspec.Struct):
    """A line of an exported run, as far as it matters here."""

    line: str = ""
    """What it holds: `entry`, `blob`, `file`, `end`, or something else."""
    seq: int = 0
    entry: msgspec.Raw = msgspec.Raw(b"null")
    ref: str = ""
    data: bytes = b""
    """A part of the blob `ref`."""
    file: ExportedFile | None = None
    format: str = ""
    tree: str = ""
    """In the first line, and set in all others."""


class ExportedTree(NamedTuple):
    """An exported run with those below it."""

    id: str
    journals: dict[str, list[Journaled]]
    """Each run's entries, by its id, in their order."""
    blobs: dict[str, bytes]
    """Contents by their `blob:` references."""
    files: list[ExportedFile]
    """The files of the workspace, as they are in the end."""


def exported_files(paths: Iterable[Path]) -> list[Path]:
    """The exported runs among the paths, which may be folders of such. Raises CommandFailed when there is none."""
    files = [file for path in paths for file in (sorted(path.glob("*.cadre")) if path.is_dir() else [path])]
    if not files:
        raise CommandFailed(
            "no exported run there: `cadre runs export RUN -o FILE.cadre` writes one", ExitCode.USAGE
        )
    return files


def exported_lines(file: Path) -> Iterator[ExportLine]:
    """Yields the lines, entries in the order of their stream. Raises CommandFailed for a file that is no whole
    export."""
    tree, last = "", ""
    try:
        with gzip.open(file) as stream:
            for number, text in enumerate(stream):
                line = msgspec.json.decode(text, type=ExportLine)
                if number == 0 and line.format != "cadre-run":
                    raise CommandFailed(f"{file} was not written by `cadre runs export`", ExitCode.USAGE)
                line.tree = tree = tree or line.tree
                last = line.line
                yield line
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
    if last != "end":
        raise CommandFailed(f"{file} was cut off: export the run again", ExitCode.USAGE)


def read_exported_run(file: Path) -> ExportedTree:
    """What is in the file. Raises CommandFailed for a file that is no whole export."""
    tree = ExportedTree("", {}, {}, [])
    for line in exported_lines(file):
        tree = tree._replace(id=line.tree)
        if line.line == "blob":
            tree.blobs[line.ref] = tree.blobs.get(line.ref, b"") + line.data
        elif line.file is not None:
            tree.files.append(line.file)
        elif line.line == "entry":
            try:
                entry: Entry = decode(bytes(line.entry), Entry)
            except UnreadableMessage as error:
                raise CommandFailed(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
            tree.journals.setdefault(entry.run, []).append(Journaled(line.seq, entry))
    return tree
