"""Brings a run from a file into this deployment.

The file is checked as a whole before anything is written. Entries are written in their order, each behind
the one before; an import that was cut short shows a part of the run, and the same file again completes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
from fastapi import Request

from cadre.errors import Fenced
from cadre.protocol.files import ELSEWHERE, WorkspaceFile
from cadre.protocol.messages import Erased, Imported
from cadre_gateway.desk import Desk
from cadre_gateway.requests.problems import Problem
from cadre_gateway.transfer import run_file
from cadre_gateway.transfer.run_file import (
    BadRunFile,
    BlobPart,
    EntryLine,
    FileLine,
    Header,
    Line,
    Manifest,
)

MOST_BYTES = 4 * 1024 * 1024 * 1024
"""Of a file as it is sent."""

_AT_ONCE = 64
_SEEN_WITHIN = 10.0


class Arrived(msgspec.Struct):
    """The answer to an import."""

    id: str
    runs: int
    entries: int


class _Place(NamedTuple):
    """Where an entry lies here, and what it says."""

    seq: int
    content: bytes


async def receive(desk: Desk, request: Request) -> Arrived:
    """Imports the file that is the request's body. Raises a 409, 413 or 422 problem, RetryableError."""
    with tempfile.TemporaryDirectory(prefix="cadre-import-") as folder:
        file = Path(folder) / "run"
        await _save(request, file)
        try:
            manifest = await asyncio.to_thread(run_file.check, file)
            return await _bring(desk, file, manifest)
        except BadRunFile as error:
            raise Problem(422, "invalid-run-file", f"the file cannot be imported: {error}") from error


async def _save(request: Request, file: Path) -> None:
    size = 0
    with file.open("wb") as stream:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MOST_BYTES:
                raise Problem(413, "too-large", f"a file may have {MOST_BYTES} bytes")
            await asyncio.to_thread(stream.write, chunk)


async def _bring(desk: Desk, file: Path, manifest: Manifest) -> Arrived:
    tree = manifest.header.tree
    if tree in desk.ledger.erasing:
        raise Problem(409, "run-exists", f"run {tree} is being erased here: import it again in a moment")
    here = await _here(desk, tree)
    await _check_free(desk, file, manifest, here)
    await desk.capacity.admit(tree)
    await _lift_erasure(desk, tree)
    writer = _Writer(desk, tree, here)
    lines = run_file.read(file)
    while some := await asyncio.to_thread(_take, lines):
        for _, found in some:
            await writer.take(found)
    await _until_listed(desk, tree, writer.last)
    return Arrived(tree, len(manifest.journals), manifest.header.entries)


def _take(lines: Iterator[tuple[int, Header | Line]]) -> list[tuple[int, Header | Line]]:
    return list(islice(lines, _AT_ONCE))


async def _here(desk: Desk, tree: str) -> dict[tuple[str, int], _Place]:
    """What of the tree is in its journals, by run and number of the entry."""
    found: dict[tuple[str, int], _Place] = {}
    async for seq, data in desk.archive.entries(tree):
        head = msgspec.json.decode(data, type=_Head)
        found[head.run, head.n] = _Place(seq, run_file.content(data))
    return found


async def _check_free(
    desk: Desk, file: Path, manifest: Manifest, here: dict[tuple[str, int], _Place]
) -> None:
    """Raises a 409 problem unless nothing of the run is here, or a part of just this one."""
    tree = manifest.header.tree
    if here:
        same = await asyncio.to_thread(_in_common, file, here)
        if same == len(here) < manifest.header.entries:
            return  # an import that was cut short
    elif await desk.history.task(tree, tree) is None:
        return
    raise Problem(409, "run-exists", f"run {tree} is here already: `cadre show {tree}`, or erase it first")


def _in_common(file: Path, here: dict[tuple[str, int], _Place]) -> int:
    """How many of the entries here stand in the file too."""
    same = 0
    for _, found in run_file.read(file):
        if isinstance(found, EntryLine):
            data = bytes(found.entry)
            head = msgspec.json.decode(data, type=_Head)
            place = here.get((head.run, head.n))
            same += place is not None and place.content == run_file.content(data)
    return same


async def _lift_erasure(desk: Desk, tree: str) -> None:
    """A run that was erased here may come back: whoever knows of the erasure is told first."""
    found = await desk.erasure.fate(tree)
    if found is not None and isinstance(found[1], Erased):
        try:
            back = Imported(id=f"{tree}:imported", tree=tree, run=tree, at=time.time())
            await desk.erasure.record(back, found[0])
        except Fenced as error:
            raise _contended(tree) from error


class _Writer:
    def __init__(self, desk: Desk, tree: str, here: dict[tuple[str, int], _Place]) -> None:
        self._desk = desk
        self._tree = tree
        self._here = here
        self._blob = bytearray()
        self._journals: dict[str, _Journal] = {}
        self.last = 0
        """Sequence of the newest entry."""

    async def take(self, found: Header | Line) -> None:
        match found:
            case BlobPart(data=data, last=last):
                self._blob += data
                if last:
                    await self._desk.platform.blobs.put(bytes(self._blob))
                    self._blob.clear()
            case EntryLine(seq=old, entry=entry):
                await self._take_entry(old, bytes(entry))
            case FileLine(file=file):
                await self._take_file(file)

    async def _take_file(self, file: WorkspaceFile) -> None:
        """A file that is there already came with an import that was cut short, or was written since."""
        if await self._desk.files.read(self._tree, file.path) is None:
            # It comes before all entries here, whichever it was written behind.
            history = [msgspec.structs.replace(one, seq=ELSEWHERE) for one in file.history]
            try:
                await self._desk.files.write(msgspec.structs.replace(file, history=history), 0)
            except Fenced as error:
                raise _contended(self._tree) from error

    async def _take_entry(self, old: int, data: bytes) -> None:
        head = msgspec.json.decode(data, type=_Head)
        journal = self._journals.setdefault(head.run, _Journal())
        place = self._here.get((head.run, head.n))
        seq = place.seq if place is not None else await self._append(head, journal, data)
        if bytes(head.snapshot) != b"null":
            journal.places.clear()
        journal.places[old] = seq
        journal.seq = seq
        self.last = max(self.last, seq)

    async def _append(self, head: _Head, journal: _Journal, data: bytes) -> int:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        fields["prev"] = msgspec.Raw(msgspec.json.encode([journal.places[old] for old in head.prev]))
        try:
            return await self._desk.archive.append(
                self._tree, head.run, msgspec.json.encode(fields), journal.seq
            )
        except Fenced as error:
            raise _contended(self._tree) from error


async def _until_listed(desk: Desk, tree: str, seq: int) -> None:
    """This gateway's list shows what it has just written."""
    news = asyncio.Event()
    with contextlib.suppress(TimeoutError), desk.tail.listen(tree, lambda _: news.set()):
        async with asyncio.timeout(_SEEN_WITHIN):
            while (known := desk.index.tree(tree)) is None or known.last < seq:
                await news.wait()
                news.clear()


def _contended(tree: str) -> Problem:
    return Problem(
        409, "run-exists", f"somebody else writes to run {tree} here: look at it before you try again"
    )


class _Head(msgspec.Struct):
    run: str
    n: int
    snapshot: msgspec.Raw = msgspec.Raw(b"null")
    prev: list[int] = []


class _Journal(msgspec.Struct):
    """A journal as far as it is here."""

    seq: int = 0
    places: dict[int, int] = {}
    """From old places to new ones, since the last snapshot."""
