"""Checks an exported run as a whole, before anything of it is written."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.objects.blob_refs import refs_in
from cadre.delivery.codec import decode
from cadre.delivery.hash_chain import Broken, ChainCheck
from cadre.errors import UnreadableMessage
from cadre.journal.back_pointers import BackPointers
from cadre.journal.entry import Entry
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.topology import tree_of
from cadre.tools.workspace import WrongPath, normal_path
from cadre.views.run_summary import end_state
from cadre_gateway.transfer.run_file import (
    MAX_BLOB_BYTES,
    BadRunFile,
    BlobPart,
    EndLine,
    EntryLine,
    FileLine,
    Header,
    Line,
    MissingBlob,
    read,
)

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,512}")


class Manifest(NamedTuple):
    """What a checked file holds."""

    header: Header
    runs: int
    broken: list[Broken]
    """The places where the hash chains of its journals do not hold."""


def check(file: Path, max_blob_bytes: int = MAX_BLOB_BYTES) -> Manifest:
    """Reads a file to its end. Raises BadRunFile for whatever would not be a run that has ended, and for a larger
    blob."""
    lines = read(file)
    _, header = next(lines)
    assert isinstance(header, Header)
    checker = _Checker(header, max_blob_bytes)
    for number, line in lines:
        try:
            checker.take(line)
        except BadRunFile as error:
            raise BadRunFile(f"line {number}: {error}") from error
    return checker.end()


class _CheckedJournal:
    """A run's journal as far as it was checked."""

    def __init__(self) -> None:
        self.length = 0
        self.last = 0
        """Number of the last entry."""
        self.has_ended = False
        self.pointers = BackPointers()
        """To the old places of its entries."""


class _Checker:
    def __init__(self, header: Header, max_blob_bytes: int) -> None:
        self._header = header
        self._max_blob_bytes = max_blob_bytes
        self._blob_bytes = 0
        self._journals: dict[str, _CheckedJournal] = {}
        self._refs: set[str] = set()
        """Blobs that came, or are said to be missing."""
        self._blobs = 0
        self._paths: set[str] = set()
        self._part: tuple[str, int] | None = None
        """The blob that is not complete, and its next part."""
        self._hash = hashlib.sha256()
        self._is_over = False
        self._chain = ChainCheck()

    def take(self, line: Header | Line) -> None:
        if self._is_over:
            raise BadRunFile("something stands behind the end")
        if self._part is not None and not isinstance(line, BlobPart):
            raise BadRunFile(f"{self._part[0]} is incomplete")
        match line:
            case BlobPart():
                self._take_part(line)
            case MissingBlob(ref=ref):
                self._refs.add(ref)
            case EntryLine():
                self._take_entry(line)
            case FileLine(file=file):
                self._take_file(file)
            case EndLine(entries=entries, blobs=blobs, files=files):
                if (entries, blobs, files) != (self._entries, self._blobs, len(self._paths)):
                    raise BadRunFile("the end counts other lines than there are")
                self._is_over = True

    def end(self) -> Manifest:
        header = self._header
        if not self._is_over:
            raise BadRunFile("its end is missing: copy it again")
        if (len(self._journals), self._entries) != (header.runs, header.entries):
            raise BadRunFile("the header counts other runs and entries than there are")
        if header.tree not in self._journals:
            raise BadRunFile(f"the journal of run {header.tree} itself is missing")
        for run, journal in self._journals.items():
            if not journal.has_ended:
                raise BadRunFile(f"run {run} has not ended: nobody would go on with it here")
        self._chain.check_members()
        return Manifest(header, len(self._journals), self._chain.broken)

    @property
    def _entries(self) -> int:
        return sum(journal.length for journal in self._journals.values())

    def _take_part(self, part: BlobPart) -> None:
        if (part.ref, part.part) != (self._part or (part.ref, 0)):
            raise BadRunFile(f"part {part.part} of {part.ref} is out of its order")
        if part.part == 0:
            self._hash, self._blob_bytes = hashlib.sha256(), 0
        self._blob_bytes += len(part.data)
        if self._blob_bytes > self._max_blob_bytes:
            raise BadRunFile(f"{part.ref} has more than {self._max_blob_bytes} bytes")
        self._hash.update(part.data)
        self._part = (part.ref, part.part + 1)
        if part.last:
            if part.ref != f"blob:{self._hash.hexdigest()}":
                raise BadRunFile(f"the content of {part.ref} is another than its name says")
            self._part = None
            self._refs.add(part.ref)
            self._blobs += 1

    def _take_file(self, file: WorkspaceFile) -> None:
        if file.tree != self._header.tree:
            raise BadRunFile(f"file {file.path!r} does not belong to run {self._header.tree}")
        try:
            if normal_path(file.path) != file.path or file.path in self._paths:
                raise BadRunFile(f"file {file.path!r} is there twice")
        except WrongPath as error:
            raise BadRunFile(str(error)) from error
        self._check_refs(msgspec.json.encode(file))
        self._paths.add(file.path)

    def _take_entry(self, line: EntryLine) -> None:
        data = bytes(line.entry)
        try:
            entry: Entry = decode(data, Entry)
        except UnreadableMessage as error:
            raise BadRunFile(str(error)) from error
        run = entry.run
        if entry.tree != self._header.tree or tree_of(run) != entry.tree or not _RUN_ID.fullmatch(run):
            raise BadRunFile(f"an entry of run {run!r} does not belong to run {self._header.tree}")
        journal = self._journals.setdefault(run, _CheckedJournal())
        if entry.n != journal.last + 1:
            raise BadRunFile(f"entry {journal.last + 1} of run {run} is missing")
        if entry.prev != journal.pointers.packed():
            raise BadRunFile(f"entry {entry.n} of run {run} names other predecessors than it has")
        self._check_refs(data)
        self._chain.take(data)
        journal.pointers.note(line.seq)
        journal.length, journal.last = journal.length + 1, entry.n
        if end_state(entry, run):
            journal.has_ended = True

    def _check_refs(self, data: bytes) -> None:
        if unknown := refs_in(data) - self._refs:
            raise BadRunFile(f"{min(unknown)} is named and is not there")
