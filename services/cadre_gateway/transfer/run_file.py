"""The file that a run is exported to: gzip, a JSON object per line, checked as a whole before a word is believed.

The first line is a Header. Blobs stand before the first entry that names them, in parts; entries stand as
their journals hold them, in the order of their stream. Before them come the files of the run's workspace: an
import that was cut short is told by entries that lack. The last line says how many there were.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cadre.adapters.nats.objects.blob_refs import refs_in
from cadre.delivery.codec import decode
from cadre.errors import UnreadableMessage
from cadre.journal.events import Entry, RunFinished
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.topology import tree_of
from cadre.tools.workspace import WrongPath, normal_path

FORMAT = "cadre-run"
VERSION = 2
"""With files of a workspace; a run without any is written in version 1."""

PART_BYTES = 192 * 1024
"""Of a blob in one line, before base64."""

MOST_LINE_BYTES = 64 * 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024 * 1024
"""Of a file once it is unpacked."""

_TREE = re.compile(r"[A-Za-z0-9-]{1,256}")
_RUN = re.compile(r"[A-Za-z0-9_-]{1,512}")


class BadRunFile(Exception):
    """Not a file that can be imported; its text says why, in one line."""


class Header(msgspec.Struct, kw_only=True):
    format: str
    v: int
    tree: str
    exported_at: float
    cadre: str
    """Version of Cadre that wrote the file."""
    runs: int
    entries: int


class BlobPart(msgspec.Struct, kw_only=True, tag_field="line", tag="blob"):
    ref: str
    part: int
    """From 0."""
    last: bool
    data: bytes
    """base64 in JSON."""


class MissingBlob(msgspec.Struct, tag_field="line", tag="missing"):
    """A blob that an entry names and that was not there any more."""

    ref: str


class EntryLine(msgspec.Struct, tag_field="line", tag="entry"):
    seq: int
    """Where the entry lay; the `prev` of later entries names it so."""
    entry: msgspec.Raw


class FileLine(msgspec.Struct, tag_field="line", tag="file"):
    """A path of the run's workspace, as its index has it."""

    file: WorkspaceFile


class End(msgspec.Struct, tag_field="line", tag="end", omit_defaults=True):
    entries: int
    blobs: int
    files: int = 0


Line = BlobPart | MissingBlob | EntryLine | FileLine | End


class Manifest(NamedTuple):
    """What a checked file holds."""

    header: Header
    journals: dict[str, int]
    """Entries of each run."""


def line(value: Header | Line) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def parts(ref: str, data: bytes) -> Iterator[BlobPart]:
    starts = range(0, max(len(data), 1), PART_BYTES)
    for number, start in enumerate(starts):
        piece = data[start : start + PART_BYTES]
        yield BlobPart(ref=ref, part=number, last=start == starts[-1], data=piece)


def read(file: Path) -> Iterator[tuple[int, Header | Line]]:
    """The lines of a file with their numbers, each for itself well-formed. Raises BadRunFile."""
    number, size = 0, 0
    try:
        with gzip.open(file) as stream:
            while text := stream.readline(MOST_LINE_BYTES + 1):
                number, size = number + 1, size + len(text)
                if len(text) > MOST_LINE_BYTES or size > MOST_BYTES:
                    raise BadRunFile(f"line {number} is longer than any line of an exported run")
                yield number, _header(text) if number == 1 else _line(number, text)
    except gzip.BadGzipFile as error:
        raise BadRunFile(
            "it is no exported run: those are gzip files that `cadre runs export` writes"
        ) from error
    except EOFError as error:
        raise BadRunFile(f"it ends in the middle of line {number + 1}: copy it again") from error
    except zlib.error as error:
        raise BadRunFile(f"it is damaged behind line {number} ({error}): copy it again") from error
    if number == 0:
        raise BadRunFile("it is empty")


def check(file: Path) -> Manifest:
    """Reads a file to its end. Raises BadRunFile for whatever would not be a run that has ended."""
    lines = read(file)
    _, header = next(lines)
    assert isinstance(header, Header)
    checker = _Checker(header)
    for number, found in lines:
        try:
            checker.take(found)
        except BadRunFile as error:
            raise BadRunFile(f"line {number}: {error}") from error
    return checker.end()


def content(entry: bytes) -> bytes:
    """Tells entries apart by what they say, wherever they and their predecessors lie."""
    fields = msgspec.json.decode(entry, type=dict[str, Any])
    fields.pop("prev", None)
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).digest()


def _header(text: bytes) -> Header:
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        if fields.get("format") != FORMAT:
            raise BadRunFile("it is no exported run: its first line does not say so")
        version = fields.get("v")
        if isinstance(version, int) and version > VERSION:
            raise BadRunFile(
                f"it is of version {version}, newer than version {VERSION}, the newest that this gateway reads:"
                " upgrade the gateway"
            )
        header = msgspec.convert(fields, Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRunFile(
            f"it is no exported run: its first line is not what it should be ({error})"
        ) from error
    if not _TREE.fullmatch(header.tree):
        raise BadRunFile(f"{header.tree!r} is not the id of a run")
    return header


def _line(number: int, text: bytes) -> Line:
    try:
        found: Line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRunFile(f"line {number} is not what it should be ({error})") from error
    return found


class _Checker:
    def __init__(self, header: Header) -> None:
        self._header = header
        self._journals: dict[str, set[int]] = {}
        """Old places of each run's entries since its last snapshot."""
        self._lengths: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._ended: set[str] = set()
        self._known: set[str] = set()
        self._blobs = 0
        self._files: set[str] = set()
        self._part: tuple[str, int] | None = None
        self._hash = hashlib.sha256()
        self._over = False

    def take(self, found: Header | Line) -> None:
        if self._over:
            raise BadRunFile("something stands behind the end")
        if self._part is not None and not isinstance(found, BlobPart):
            raise BadRunFile(f"{self._part[0]} is incomplete")
        match found:
            case BlobPart():
                self._take_part(found)
            case MissingBlob(ref=ref):
                self._known.add(ref)
            case EntryLine():
                self._take_entry(found)
            case FileLine(file=file):
                self._take_file(file)
            case End(entries=entries, blobs=blobs, files=files):
                if (entries, blobs, files) != (sum(self._lengths.values()), self._blobs, len(self._files)):
                    raise BadRunFile("the end counts other lines than there are")
                self._over = True

    def end(self) -> Manifest:
        header = self._header
        if not self._over:
            raise BadRunFile("its end is missing: copy it again")
        if (len(self._lengths), sum(self._lengths.values())) != (header.runs, header.entries):
            raise BadRunFile("the header counts other runs and entries than there are")
        if header.tree not in self._lengths:
            raise BadRunFile(f"the journal of run {header.tree} itself is missing")
        for run in self._lengths:
            if run not in self._ended:
                raise BadRunFile(f"run {run} has not ended: nobody would go on with it here")
        return Manifest(header, self._lengths)

    def _take_part(self, found: BlobPart) -> None:
        if (found.ref, found.part) != (self._part or (found.ref, 0)):
            raise BadRunFile(f"part {found.part} of {found.ref} is out of its order")
        if found.part == 0:
            self._hash = hashlib.sha256()
        self._hash.update(found.data)
        self._part = (found.ref, found.part + 1)
        if found.last:
            if found.ref != f"blob:{self._hash.hexdigest()}":
                raise BadRunFile(f"the content of {found.ref} is another than its name says")
            self._part = None
            self._known.add(found.ref)
            self._blobs += 1

    def _take_file(self, file: WorkspaceFile) -> None:
        if file.tree != self._header.tree:
            raise BadRunFile(f"file {file.path!r} does not belong to run {self._header.tree}")
        try:
            if normal_path(file.path) != file.path or file.path in self._files:
                raise BadRunFile(f"file {file.path!r} is there twice")
        except WrongPath as error:
            raise BadRunFile(str(error)) from error
        if unknown := refs_in(msgspec.json.encode(file)) - self._known:
            raise BadRunFile(f"{min(unknown)} is named and is not there")
        self._files.add(file.path)

    def _take_entry(self, found: EntryLine) -> None:
        data = bytes(found.entry)
        try:
            entry: Entry = decode(data, Entry)
        except UnreadableMessage as error:
            raise BadRunFile(str(error)) from error
        run = entry.run
        if entry.tree != self._header.tree or tree_of(run) != entry.tree or not _RUN.fullmatch(run):
            raise BadRunFile(f"an entry of run {run!r} does not belong to run {self._header.tree}")
        length = self._lengths.get(run, 0)
        if entry.n != self._last.get(run, 0) + 1 and (length or entry.snapshot is None):
            raise BadRunFile(f"entry {self._last.get(run, 0) + 1} of run {run} is missing")
        chain = self._journals.setdefault(run, set())
        if entry.snapshot is not None:
            chain.clear()
        if not chain.issuperset(entry.prev):
            raise BadRunFile(f"entry {entry.n} of run {run} names predecessors that are not there")
        if unknown := refs_in(data) - self._known:
            raise BadRunFile(f"{min(unknown)} is named and is not there")
        chain.add(found.seq)
        self._lengths[run], self._last[run] = length + 1, entry.n
        if any(isinstance(event, RunFinished) for event in entry.events):
            self._ended.add(run)
