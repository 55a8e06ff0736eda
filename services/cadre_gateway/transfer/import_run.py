"""Brings a run from a file into this deployment.

The file is checked as a whole before anything is written. Entries are written in their order, each behind
the one before; an import that was cut short shows a part of the run, and the same file again completes it.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from cadre.adapters.nats.reading.archive import NatsArchive
from cadre.adapters.nats.reading.tail import Tail
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.errors import Fenced
from cadre.ports import Blobs, Clock
from cadre.protocol.addresses.generations import generation_of
from cadre.protocol.fates import Erased, Imported
from cadre.protocol.topology import Topology
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem
from cadre_gateway.starting.admission import Capacity
from cadre_gateway.transfer import run_file
from cadre_gateway.transfer.check import Manifest, check
from cadre_gateway.transfer.run_file import MAX_BLOB_BYTES, BadRunFile, EntryLine, Header, Line
from cadre_gateway.transfer.write_run import EntryHead, RunWriter, StoredHere, contended

MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
"""The size of a file as it is sent."""

_LINES_AT_ONCE = 64
_BYTES_AT_ONCE = 4 * 1024 * 1024
_IMPORTS_AT_ONCE = 2
"""The others have their file on the disk, and wait."""

_TOLD_LINKS = 100
"""Broken links that a refusal names."""

_LISTED_SECONDS = 10.0
"""The answer waits so long for the run to stand in this gateway's list."""


class Arrived(msgspec.Struct):
    """The answer to an import."""

    id: str
    runs: int
    entries: int


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
        lines = run_file.read(file)
        while some := await asyncio.to_thread(_take, lines):
            for line in some:
                await writer.take(line)
        await self._until_listed()
        return Arrived(tree, manifest.runs, manifest.header.entries)

    async def _entries_here(self, tree: str) -> StoredHere:
        found: StoredHere = {}
        async for seq, data in self.archive.entries(tree):
            head = msgspec.json.decode(data, type=EntryHead)
            found[head.run, head.n] = (seq, run_file.content_digest(data))
        return found

    async def _check_free(self, file: Path, manifest: Manifest, present: StoredHere) -> None:
        """Raises a 409 problem unless nothing of the run is here, or a part of just this one."""
        tree = manifest.header.tree
        if present:
            same = await asyncio.to_thread(_count_common, file, present)
            if same == len(present) < manifest.header.entries:
                return  # an import that was cut short
        elif await self.lookup.history.task(tree, tree) is None:
            return
        raise Problem(
            409, "run-exists", f"run {tree} is here already: `cadre show {tree}`, or erase it first"
        )

    async def _lift_erasure(self, tree: str) -> None:
        """Records that a run which was erased here is back, before anything of it is written."""
        found = await self.lookup.erasure.fate(tree)
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
    """The next lines, of a few bytes together."""
    taken: list[Header | Line] = []
    size = 0
    for _, line in islice(lines, _LINES_AT_ONCE):
        taken.append(line)
        size += run_file.content_bytes(line)
        if size >= _BYTES_AT_ONCE:
            break
    return taken


def _count_common(file: Path, present: StoredHere) -> int:
    """How many of the entries here stand in the file too."""
    same = 0
    for _, line in run_file.read(file):
        if isinstance(line, EntryLine):
            data = bytes(line.entry)
            head = msgspec.json.decode(data, type=EntryHead)
            found = present.get((head.run, head.n))
            same += found is not None and found[1] == run_file.content_digest(data)
    return same
