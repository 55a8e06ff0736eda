"""Import a run from a file into this deployment.

The file is checked as a whole before anything is written. Entries are written in their order, each after the one
before; an import that was interrupted shows a part of the run, and importing the same file again completes it.
"""

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.blobs import refs_in
from cadre.adapters.nats.reading.history import NatsArchive
from cadre.adapters.nats.reading.tail import Tail
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.codec import decode
from cadre.delivery.hash_chain import Broken, ChainCheck, moved
from cadre.errors import Fenced, UnreadableMessage
from cadre.journal.entry import BackPointers, Entry
from cadre.ports import Blobs, Clock
from cadre.protocol.files import UNKNOWN_POSITION, WorkspaceFile
from cadre.protocol.messages import Erased, Imported
from cadre.protocol.topology import Topology, generation_of, tree_of
from cadre.tools.workspace import WrongPath, normal_path
from cadre.views.run_summary import end_state
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem
from cadre_gateway.starting.admission import Capacity
from cadre_gateway.transfer import export
from cadre_gateway.transfer.export import (
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

MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
"""The size of a file as it is sent."""

_LINES_AT_ONCE = 64
_BYTES_AT_ONCE = 4 * 1024 * 1024
_IMPORTS_AT_ONCE = 2
"""The others have their file on the disk, and wait."""

_TOLD_LINKS = 100
"""Broken links that a refusal names."""

_LISTED_SECONDS = 10.0
"""Seconds that the answer waits for the run to appear in this gateway's list."""

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,512}")

StoredHere = dict[tuple[str, int], tuple[int, bytes]]
"""The entries of a tree that are here, by run and number: where each lies, and the digest of its content."""


class Arrived(msgspec.Struct):
    """The answer to an import."""

    id: str
    runs: int
    entries: int


class Manifest(NamedTuple):
    """The contents of a checked file."""

    header: Header
    runs: int
    broken: list[Broken]
    """The places where the hash chains of its journals do not hold."""


def check(file: Path, max_blob_bytes: int = MAX_BLOB_BYTES) -> Manifest:
    """Read a file to its end. Raises BadRunFile for anything that would not be a run that has ended, and for a larger
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
                raise BadRunFile(f"run {run} has not ended: no service would continue it here")
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


class EntryHead(msgspec.Struct):
    """The fields of an entry that an import needs; the rest is written unchanged."""

    run: str
    n: int


class _ImportedJournal:
    """A journal as far as it is here."""

    def __init__(self) -> None:
        self.seq = 0
        """The sequence of its last entry."""
        self.pointers = BackPointers()


class RunWriter:
    """Takes the lines of one file in their order; entries that are here already are not written again."""

    def __init__(
        self, archive: NatsArchive, files: NatsFileIndex, blobs: Blobs, tree: str, present: StoredHere
    ) -> None:
        self._archive = archive
        self._files = files
        self._blobs = blobs
        self._tree = tree
        self._present = present
        self._blob = bytearray()
        self._journals: dict[str, _ImportedJournal] = {}
        self.last = 0
        """Sequence of the newest entry."""

    async def take(self, line: Header | Line) -> None:
        """Write what the line holds. Raises a 409 problem when another process writes to the run, RetryableError."""
        try:
            match line:
                case BlobPart(data=data, last=last):
                    self._blob += data
                    if last:
                        await self._blobs.put(bytes(self._blob))
                        self._blob.clear()
                case EntryLine(entry=entry):
                    await self._take_entry(bytes(entry))
                case FileLine(file=file):
                    await self._take_file(file)
        except Fenced as error:
            raise contended(self._tree) from error

    async def _take_file(self, file: WorkspaceFile) -> None:
        """A file that is there already came with an import that was cut short, or was written since."""
        if await self._files.read(self._tree, file.path) is None:
            # It comes before all entries here, whichever it was written behind.
            history = [msgspec.structs.replace(one, seq=UNKNOWN_POSITION) for one in file.history]
            await self._files.write(msgspec.structs.replace(file, history=history), 0)

    async def _take_entry(self, data: bytes) -> None:
        head = msgspec.json.decode(data, type=EntryHead)
        journal = self._journals.setdefault(head.run, _ImportedJournal())
        found = self._present.get((head.run, head.n))
        seq = found[0] if found is not None else await self._append(head, journal, data)
        journal.pointers.note(seq)
        journal.seq = seq
        self.last = max(self.last, seq)

    async def _append(self, head: EntryHead, journal: _ImportedJournal, data: bytes) -> int:
        return await self._archive.append(self._tree, head.run, moved(data, journal.pointers.packed()), journal.seq)


def contended(tree: str) -> Problem:
    """Return the 409 problem of an import that conflicts with writes of another process."""
    return Problem(409, "run-exists", f"somebody else writes to run {tree} here: look at it before you try again")


@dataclass(frozen=True)
class RunImporter:
    """Imports runs."""

    lookup: RunLookup
    capacity: Capacity
    tail: Tail
    archive: NatsArchive
    files: NatsFileIndex
    blobs: Blobs
    clock: Clock
    file_bytes: int
    """The most bytes of a file in a workspace."""
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_IMPORTS_AT_ONCE))

    async def receive(self, body: AsyncIterable[bytes], *, unverified: bool = False) -> Arrived:
        """Import the file that `body` is; with `unverified` also one whose hash chains do not hold. Raises a 409, 413
        or 422 problem, RetryableError."""
        with tempfile.TemporaryDirectory(prefix="cadre-import-") as folder:
            file = Path(folder) / "run"
            await _save(body, file)
            try:
                async with self._turns:
                    manifest = await asyncio.to_thread(check, file, max(MAX_BLOB_BYTES, self.file_bytes))
                    if manifest.broken and not unverified:
                        raise _broken(manifest)
                    return await self._import(file, manifest)
            except BadRunFile as error:
                raise Problem(422, "invalid-run-file", f"the file cannot be imported: {error}") from error

    async def _import(self, file: Path, manifest: Manifest) -> Arrived:
        tree = manifest.header.tree
        if not await self.lookup.shards.knows(tree):
            raise _too_many_generations(tree, self.lookup.shards.topology)
        self.lookup.index.check_whole()  # what is being erased is known by then
        if tree in self.lookup.index.removals.pending_erasures:
            raise Problem(409, "run-exists", f"run {tree} is being erased here: import it again in a moment")
        present = await self._entries_here(tree)
        await self._check_free(file, manifest, present)
        await self.capacity.admit(tree)
        await self._lift_erasure(tree)
        writer = RunWriter(self.archive, self.files, self.blobs, tree, present)
        lines = export.read(file)
        while some := await asyncio.to_thread(_take, lines):
            for line in some:
                await writer.take(line)
        await self._until_listed()
        return Arrived(tree, manifest.runs, manifest.header.entries)

    async def _entries_here(self, tree: str) -> StoredHere:
        found: StoredHere = {}
        async for seq, data in self.archive.entries(tree):
            head = msgspec.json.decode(data, type=EntryHead)
            found[head.run, head.n] = (seq, export.content_digest(data))
        return found

    async def _check_free(self, file: Path, manifest: Manifest, present: StoredHere) -> None:
        """Raise a 409 problem unless nothing of the run is here, or a part of just this one."""
        tree = manifest.header.tree
        if present:
            same = await asyncio.to_thread(_count_common, file, present)
            if same == len(present) < manifest.header.entries:
                return  # an import that was cut short
        elif await self.lookup.history.task(tree, tree) is None:
            return
        raise Problem(409, "run-exists", f"run {tree} is here already: `cadre show {tree}`, or erase it first")

    async def _lift_erasure(self, tree: str) -> None:
        """Record that a run which was erased here is back, before anything of it is written."""
        found = await self.lookup.erasure.lifecycle(tree)
        if found is not None and isinstance(found[1], Erased):
            try:
                back = Imported(id=f"{tree}:imported", tree=tree, run=tree, at=self.clock.now())
                await self.lookup.erasure.record(back, found[0])
            except Fenced as error:
                raise contended(tree) from error

    async def _until_listed(self) -> None:
        """Return once this gateway's list shows what was written, at the latest after _LISTED_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LISTED_SECONDS):
                await self.tail.read_on()


def _too_many_generations(tree: str, topology: Topology) -> Problem:
    there, here = generation_of(tree) + 1, topology.newest + 1
    return Problem(
        409,
        "unknown-shards",
        f"run {tree} began in generation {there} of its deployment's shards, and this one has {here}: let the shards"
        f" grow first, by `cadre shards grow {topology.shards + 1}` or more ({there - here} times)",
    )


def _broken(manifest: Manifest) -> Problem:
    first, more = manifest.broken[0], len(manifest.broken) - 1
    others = f" ({more} more like it)" if more else ""
    detail = (
        f"the journal of run {first.run} was changed since it was written: entry {first.n}: {first.reason}{others}."
        " Export the run again where it is, or import it with unverified=true (`cadre runs import --unverified`)"
    )
    links = [{"run": one.run, "n": one.n} for one in manifest.broken[:_TOLD_LINKS]]
    return Problem(422, "broken-chain", detail, broken=links)


async def _save(body: AsyncIterable[bytes], file: Path) -> None:
    size = 0
    with file.open("wb") as stream:
        async for chunk in body:
            size += len(chunk)
            if size > MAX_FILE_BYTES:
                raise Problem(413, "too-large", f"a file may have {MAX_FILE_BYTES} bytes")
            await asyncio.to_thread(stream.write, chunk)


def _take(lines: Iterator[tuple[int, Header | Line]]) -> list[Header | Line]:
    """Return the next lines, of a few bytes together."""
    taken: list[Header | Line] = []
    size = 0
    for _, line in islice(lines, _LINES_AT_ONCE):
        taken.append(line)
        size += export.content_bytes(line)
        if size >= _BYTES_AT_ONCE:
            break
    return taken


def _count_common(file: Path, present: StoredHere) -> int:
    """Return how many of the entries here are also in the file."""
    same = 0
    for _, line in export.read(file):
        if isinstance(line, EntryLine):
            data = bytes(line.entry)
            head = msgspec.json.decode(data, type=EntryHead)
            found = present.get((head.run, head.n))
            same += found is not None and found[1] == export.content_digest(data)
    return same
