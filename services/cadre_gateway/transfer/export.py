"""Export a run that has ended, with all runs below it, to a file: gzip, one JSON object per line."""

import gzip
import hashlib
import re
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cadre import __version__
from cadre.adapters.nats.blobs import refs_in
from cadre.adapters.nats.reading.history import NatsArchive
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.codec import decode
from cadre.errors import BlobMissing, BusUnavailable, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.ports import Blobs
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.topology import tree_of
from cadre.views.run_summary import end_state
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem, invalid

FORMAT = "cadre-run"
VERSION = 1

PART_BYTES = 192 * 1024
"""The bytes of a blob in one line, before base64."""

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_UNPACKED_BYTES = 16 * 1024 * 1024 * 1024
"""The size of all lines together."""

MAX_BLOB_BYTES = 64 * 1024 * 1024
"""The size of a blob, unless CADRE_FILE_BYTES allows larger files."""

_FREELY_UNPACKED_BYTES = 256 * 1024 * 1024
_MAX_RATIO = 100
"""Beyond the first bytes, lines may be so many times as large as what was read of the file to unpack them."""

_MAX_VALUES = 4_000_000
"""Brackets and commas in one line: each may become an object in memory."""

_STRUCTURE = (b"[", b"{", b",")

_TREE_ID = re.compile(r"[A-Za-z0-9-]{1,256}")


class BadRunFile(Exception):
    """Not a file that can be imported; its text says why, in one line."""


class Header(msgspec.Struct, kw_only=True):
    """The first line: what the file holds."""

    format: str
    v: int
    tree: str
    exported_at: float
    cadre: str
    """Version of Cadre that wrote the file."""
    runs: int
    entries: int


class BlobPart(msgspec.Struct, kw_only=True, tag_field="line", tag="blob"):
    """A part of a blob."""

    ref: str
    part: int
    """Counted from 0."""
    last: bool
    data: bytes
    """base64 in JSON."""


class MissingBlob(msgspec.Struct, tag_field="line", tag="missing"):
    """A blob that an entry names and that was not there any more."""

    ref: str


class EntryLine(msgspec.Struct, tag_field="line", tag="entry"):
    """A journal entry as it was written."""

    seq: int
    """The old sequence of the entry, by which the `prev` of later entries names it."""
    entry: msgspec.Raw


class FileLine(msgspec.Struct, tag_field="line", tag="file"):
    """A path of the run's workspace, as its index has it."""

    file: WorkspaceFile


class EndLine(msgspec.Struct, tag_field="line", tag="end", omit_defaults=True):
    """The last line: how many entries, blobs and files stand before it."""

    entries: int
    blobs: int
    files: int = 0


Line = BlobPart | MissingBlob | EntryLine | FileLine | EndLine


def encode_line(value: Header | Line) -> bytes:
    """Return the line with its newline."""
    return msgspec.json.encode(value) + b"\n"


def parts(ref: str, data: bytes) -> Iterator[BlobPart]:
    """Yield the lines of a blob; an empty one has a part, too."""
    starts = range(0, max(len(data), 1), PART_BYTES)
    for number, start in enumerate(starts):
        piece = data[start : start + PART_BYTES]
        yield BlobPart(ref=ref, part=number, last=start == starts[-1], data=piece)


def content_bytes(line: Header | Line) -> int:
    """Return how much of a blob or of a journal the line holds."""
    match line:
        case BlobPart(data=data):
            return len(data)
        case EntryLine(entry=entry):
            return len(bytes(entry))
        case _:
            return 0


def read(file: Path) -> Iterator[tuple[int, Header | Line]]:
    """Yield the lines of a file with their numbers, each for itself well-formed. Raises BadRunFile."""
    number, size = 0, 0
    try:
        with file.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
            while text := stream.readline(MAX_LINE_BYTES + 1):
                number, size = number + 1, size + len(text)
                if len(text) > MAX_LINE_BYTES or size > MAX_UNPACKED_BYTES:
                    raise BadRunFile(f"line {number} is longer than any line of an exported run")
                if size > _FREELY_UNPACKED_BYTES + _MAX_RATIO * packed.tell():
                    raise BadRunFile(f"line {number} unpacks to more than {_MAX_RATIO} times its size")
                if sum(map(text.count, _STRUCTURE)) > _MAX_VALUES:
                    raise BadRunFile(f"line {number} has more values than any line of an exported run")
                yield number, _header(text) if number == 1 else _line(number, text)
    except gzip.BadGzipFile as error:
        raise BadRunFile("it is no exported run: those are gzip files that `cadre runs export` writes") from error
    except EOFError as error:
        raise BadRunFile(f"it ends in the middle of line {number + 1}: copy it again") from error
    except zlib.error as error:
        raise BadRunFile(f"it is damaged behind line {number} ({error}): copy it again") from error
    if number == 0:
        raise BadRunFile("it is empty")


def content_digest(entry: bytes) -> bytes:
    """Return a hash of what an entry says, the same wherever the entry and its predecessors lie."""
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
        raise BadRunFile(f"it is no exported run: its first line is not what it should be ({error})") from error
    if not _TREE_ID.fullmatch(header.tree):
        raise BadRunFile(f"{header.tree!r} is not the id of a run")
    return header


def _line(number: int, text: bytes) -> Line:
    try:
        found: Line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRunFile(f"line {number} is not what it should be ({error})") from error
    return found


_GZIP_LEVEL = 3
_PIECE_BYTES = 64 * 1024


class _Extent(NamedTuple):
    """The extent of an export: later entries only say that something came late."""

    runs: int
    entries: int
    last: int
    """Sequence of the last entry."""


@dataclass(frozen=True)
class RunExporter:
    """Writes runs to files."""

    lookup: RunLookup
    archive: NatsArchive
    files: NatsFileIndex
    blobs: Blobs

    async def export(self, run: str) -> AsyncGenerator[bytes]:
        """Return the pieces of the file. Raises a 404, 409 or 422 problem, BusUnavailable, before the first of them."""
        await self.lookup.find(run)
        tree = tree_of(run)
        if run != tree:
            raise invalid(f"run {run} is a part of run {tree}, and only whole trees are exported: export {tree}")
        return self._compressed(tree, await self._extent(tree))

    async def _extent(self, tree: str) -> _Extent:
        """Raise a 409 problem when the tree cannot be exported (yet)."""
        ended: dict[str, bool] = {}
        entries = last = 0
        # A replica may lag behind the leader.
        newest = await self.lookup.history.newest(tree)
        async for seq, data in self.archive.entries(tree, at_least=newest):
            entry = _decoded(seq, data)
            ended[entry.run] = ended.get(entry.run, False) or end_state(entry, entry.run) is not None
            entries, last = entries + 1, seq
        open_runs = [run for run, over in ended.items() if not over]
        if tree not in ended:
            open_runs.append(tree)
        if open_runs:
            raise Problem(
                409,
                "run-not-ended",
                f"run {open_runs[0]} has not ended: wait for its end, or cancel it, then export",
            )
        return _Extent(len(ended), entries, last)

    async def _compressed(self, tree: str, extent: _Extent) -> AsyncGenerator[bytes]:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=31)
        pending = bytearray()
        async for text in self._lines(tree, extent):
            pending += packer.compress(text)
            if len(pending) >= _PIECE_BYTES:
                yield bytes(pending)
                pending.clear()
        yield bytes(pending) + packer.flush()

    async def _lines(self, tree: str, extent: _Extent) -> AsyncIterator[bytes]:
        files = [file for file in await self.files.all(tree) if file.ref is not None]
        yield encode_line(
            Header(
                format=FORMAT,
                v=VERSION,
                tree=tree,
                exported_at=time.time(),
                cadre=__version__,
                runs=extent.runs,
                entries=extent.entries,
            )
        )
        written: set[str] = set()
        counts: Counter[str] = Counter()
        for file in files:
            # Earlier versions are gone when nothing else names them.
            now = encode_line(FileLine(msgspec.structs.replace(file, history=file.history[-1:])))
            async for text in self._blobs(refs_in(now), written, counts):
                yield text
            yield now
        async for seq, data in self.archive.entries(tree):
            if seq > extent.last:
                break
            async for text in self._blobs(refs_in(data), written, counts):
                yield text
            counts["entries"] += 1
            yield encode_line(EntryLine(seq, msgspec.Raw(data)))
        if counts["entries"] != extent.entries:
            # Nothing else can be said now: the file ends without its end, which its reader will notice.
            raise BusUnavailable(f"exporting {tree}", "it was removed meanwhile")
        yield encode_line(EndLine(counts["entries"], counts["blobs"], len(files)))

    async def _blobs(self, refs: set[str], written: set[str], counts: Counter[str]) -> AsyncIterator[bytes]:
        """Yield lines of the blobs that were not written before."""
        for ref in sorted(refs - written):
            written.add(ref)
            try:
                data = await self.blobs.get(ref)
            except BlobMissing:
                yield encode_line(MissingBlob(ref))
                continue
            counts["blobs"] += 1
            for part in parts(ref, data):
                yield encode_line(part)


def _decoded(seq: int, data: bytes) -> Entry:
    try:
        entry: Entry = decode(data, Entry)
    except UnreadableMessage as error:
        raise Problem(409, "unreadable-run", f"entry {seq} cannot be exported: {error}") from error
    return entry
