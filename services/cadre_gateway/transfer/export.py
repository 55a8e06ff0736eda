"""Writes a run that has ended, with all runs below it, to a file."""

import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from cadre import __version__
from cadre.adapters.nats.blobs import refs_in
from cadre.adapters.nats.reading.archive import NatsArchive
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.codec import decode
from cadre.errors import BlobMissing, BusUnavailable, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.ports import Blobs
from cadre.protocol.topology import tree_of
from cadre.views.run_summary import end_state
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.transfer.run_file import (
    FORMAT,
    VERSION,
    EndLine,
    EntryLine,
    FileLine,
    Header,
    MissingBlob,
    encode_line,
    parts,
)

_GZIP_LEVEL = 3
_PIECE_BYTES = 64 * 1024


class _Extent(NamedTuple):
    """What is exported: later entries only say that something came late."""

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
        """The pieces of the file. Raises a 404, 409 or 422 problem, BusUnavailable, before the first of them."""
        await self.lookup.find(run)
        tree = tree_of(run)
        if run != tree:
            raise invalid(
                f"run {run} is a part of run {tree}, and only whole trees are exported: export {tree}"
            )
        return self._compressed(tree, await self._extent(tree))

    async def _extent(self, tree: str) -> _Extent:
        """Raises a 409 problem when the tree cannot be exported (yet)."""
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
        """Lines of the blobs that were not written before."""
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
