"""Writes a run that has ended, with all runs below it, to a file."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.archive import RawEntry
from cadre.adapters.nats.objects.blob_refs import refs_in
from cadre.delivery.codec import decode
from cadre.errors import BlobMissing, BusUnavailable, UnreadableMessage
from cadre.journal.events import Entry, RunFinished
from cadre.protocol.topology import tree_of
from cadre_gateway.desk import Desk
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.runs.lookup import find
from cadre_gateway.transfer.run_file import (
    FORMAT,
    VERSION,
    End,
    EntryLine,
    FileLine,
    Header,
    MissingBlob,
    line,
    parts,
)

_LEVEL = 3
_PIECE = 64 * 1024


class _Extent(NamedTuple):
    """What is exported: later entries only say that something came late."""

    runs: int
    entries: int
    last: int


async def export(desk: Desk, run: str) -> AsyncGenerator[bytes]:
    """The pieces of the file. Raises a 404, 409 or 422 problem, BusUnavailable, before the first of them."""
    await find(desk, run)
    tree = tree_of(run)
    if run != tree:
        raise invalid(f"run {run} is a part of run {tree}, and only whole trees are exported: export {tree}")
    return _pieces(desk, tree, await _extent(desk, tree))


async def _extent(desk: Desk, tree: str) -> _Extent:
    """Raises a 409 problem when the tree cannot be exported (yet)."""
    ended: dict[str, bool] = {}
    entries = last = 0
    known = desk.index.tree(tree)
    # A replica may lag behind what the tail has already told.
    async for seq, data in desk.archive.entries(tree, at_least=known.last if known else 0):
        entry = _read(seq, data)
        finished = any(isinstance(event, RunFinished) for event in entry.events)
        ended[entry.run] = ended.get(entry.run, False) or finished
        entries, last = entries + 1, seq
    open_ones = [run for run, over in ended.items() if not over] or ([tree] if tree not in ended else [])
    if open_ones:
        raise Problem(
            409,
            "run-not-ended",
            f"run {open_ones[0]} has not ended: wait for its end, or cancel it, then export",
        )
    return _Extent(len(ended), entries, last)


def _read(seq: int, data: bytes) -> Entry:
    try:
        entry: Entry = decode(data, Entry)
    except UnreadableMessage as error:
        raise Problem(409, "unreadable-run", f"entry {seq} cannot be exported: {error}") from error
    return entry


async def _pieces(desk: Desk, tree: str, extent: _Extent) -> AsyncGenerator[bytes]:
    packer = zlib.compressobj(_LEVEL, wbits=31)
    pending = bytearray()
    async for text in _lines(desk, tree, extent):
        pending += packer.compress(text)
        if len(pending) >= _PIECE:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending) + packer.flush()


async def _lines(desk: Desk, tree: str, extent: _Extent) -> AsyncIterator[bytes]:
    files = [file for file in await desk.files.all(tree) if file.ref is not None]
    yield line(
        Header(
            format=FORMAT,
            v=VERSION if files else 1,
            tree=tree,
            exported_at=time.time(),
            cadre=_version(),
            runs=extent.runs,
            entries=extent.entries,
        )
    )
    told: set[str] = set()
    counts: Counter[str] = Counter()
    for file in files:
        # Earlier versions are gone when nothing else names them.
        now = line(FileLine(msgspec.structs.replace(file, history=file.history[-1:])))
        async for text in _blobs(desk, refs_in(now), told, counts):
            yield text
        yield now
    async for entry in desk.archive.entries(tree):
        if entry.seq > extent.last:
            break
        async for text in _blobs(desk, refs_in(entry.data), told, counts):
            yield text
        counts["entries"] += 1
        yield _entry(entry)
    if counts["entries"] != extent.entries:
        # Nothing else can be said now: the file ends without its end, which its reader will notice.
        raise BusUnavailable(f"exporting {tree}", "it was removed meanwhile")
    yield line(End(counts["entries"], counts["blobs"], len(files)))


async def _blobs(desk: Desk, refs: set[str], told: set[str], counts: Counter[str]) -> AsyncIterator[bytes]:
    """Lines of the blobs that were not told before."""
    for ref in sorted(refs - told):
        told.add(ref)
        try:
            data = await desk.platform.blobs.get(ref)
        except BlobMissing:
            yield line(MissingBlob(ref))
            continue
        counts["blobs"] += 1
        for part in parts(ref, data):
            yield line(part)


def _entry(entry: RawEntry) -> bytes:
    return line(EntryLine(entry.seq, msgspec.Raw(entry.data)))


def _version() -> str:
    try:
        return version("cadre-agents")
    except PackageNotFoundError:
        return "unknown"
