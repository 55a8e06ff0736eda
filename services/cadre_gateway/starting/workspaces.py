"""Workspaces as requests use them, and as a run that goes on from another one begins with.

Such a run gets the files of the other one before it begins: the entries of the index are copied, the contents stay
where they are, as the erasure of one of the two runs spares what the other one names. The task of the run is published
last, so a run never begins with a part of its files; a repetition of a request that was cut short completes what is
there.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.workspace_store import MAX_FILES, WorkspaceStore
from cadre.errors import BusUnavailable, Fenced
from cadre.protocol.files import WorkspaceFile, as_of, carried_over, decode_data_url, is_blob_ref, is_carried
from cadre.protocol.messages import Erased
from cadre.tools.files import File
from cadre.tools.workspace import FileChanged, NoSuchFile, WorkspaceError
from cadre_gateway import SENDER
from cadre_gateway.requests.problems import Problem, invalid

_MAX_PARALLEL_WRITES = 64

_FencedFile = tuple[WorkspaceFile, int]
"""A record of an index, and its fence."""


@dataclass(frozen=True)
class Workspaces:
    """Opens the workspaces of trees."""

    files: NatsFileIndex
    blobs: NatsBlobs
    max_file_bytes: int

    def open(self, tree: str, request: str) -> WorkspaceStore:
        """Return the workspace of a tree. `request` makes a write the same one when the request comes again."""
        return WorkspaceStore(
            self.files, self.blobs, tree=tree, call=request, by=SENDER, most_bytes=self.max_file_bytes
        )

    async def put(self, tree: str, wanted: Mapping[str, str]) -> None:
        """Put the files of a run that is about to begin where its agents find them. Raises a 422 problem."""
        workspace = self.open(tree, "task")
        with workspace_problems():
            for path, ref in wanted.items():
                data, media_type = await _content(workspace, path, ref)
                await workspace.write(path, File(data, name=path, media_type=media_type))


async def _content(workspace: WorkspaceStore, path: str, ref: str) -> tuple[bytes, str]:
    if is_blob_ref(ref):
        return await workspace.blob(ref), ""
    try:
        content = decode_data_url(ref)
    except ValueError as error:
        raise invalid(f"files.{path}: not base64: {error}") from error
    if content is None:
        raise invalid(f"files.{path}: send a `data:…;base64,…` URL or a `blob:<sha256>`")
    return content.data, content.media_type


@contextmanager
def workspace_problems() -> Iterator[None]:
    """Turn what a workspace refuses into a problem."""
    try:
        yield
    except NoSuchFile as error:
        raise Problem(404, "unknown-file", str(error)) from error
    except FileChanged as error:
        raise Problem(409, "file-changed", str(error)) from error
    except WorkspaceError as error:
        raise invalid(str(error)) from error


class WorkspaceSource(NamedTuple):
    """The workspace that another one begins with."""

    tree: str
    point: int | None = None
    """Sequence in the stream of the tree's journals: as it was before that. None: as it is."""
    is_exact: bool = True
    """True if that is the point that was asked for."""


@dataclass(frozen=True)
class FileCarrier:
    """Copies workspaces to new runs."""

    files: NatsFileIndex
    history: History
    erasure: NatsErasure

    async def carry(self, source: WorkspaceSource | None, tree: str) -> list[str]:
        """Make the workspace of a run that is about to begin that of `source` (None: empty), in addition to the files
        that the run was given itself.

        Returns the paths whose version at the point is unknown: they are as they are in the source now. Raises a 422
        problem, RetryableError.
        """
        present = {record.path: (record, seq) for record, seq in await self.files.versions(tree)}
        if present and await self.history.task(tree, tree) is not None:
            return []  # another try of this request has come to its end
        wanted, later = await self._files_of(source) if source is not None else ({}, [])
        own = {path for path, (record, _) in present.items() if record.ref is not None and not is_carried(record)}
        if (number := len(own | wanted.keys())) > MAX_FILES:
            raise invalid(
                f"the run would begin with {number} files, those of run {source.tree if source else tree} among"
                f" them: a workspace has at most {MAX_FILES}; give it fewer, or begin afresh (reset=true)"
            )
        changes = [carried_over(record, tree) for record in wanted.values()]
        changes += [_removal(record) for path, (record, _) in present.items() if path not in wanted]
        await self._write_all((record, present.get(record.path)) for record in changes)
        if source is not None:
            await self._check_not_erased(source.tree)
        return later

    async def has_files(self, tree: str) -> bool:
        """Return whether there is any file in the workspace of a tree. Raises RetryableError."""
        return any(record.ref is not None for record, _ in await self.files.versions(tree))

    async def _files_of(self, source: WorkspaceSource) -> tuple[dict[str, WorkspaceFile], list[str]]:
        """Return the files by path, and the paths whose version at the point is unknown."""
        wanted: dict[str, WorkspaceFile] = {}
        later = []
        for record, seq in await self.files.versions(source.tree):
            found = as_of(record, seq, source.point)
            if found.file is not None:
                wanted[record.path] = found.file
            if not (found.is_certain and source.is_exact):
                later.append(record.path)
        return wanted, sorted(later)

    async def _write_all(self, changes: Iterable[tuple[WorkspaceFile, _FencedFile | None]]) -> None:
        slots = asyncio.Semaphore(_MAX_PARALLEL_WRITES)

        async def write(record: WorkspaceFile, found: _FencedFile | None) -> None:
            async with slots:
                while not _is_settled(record, found):
                    try:
                        await self.files.write(record, found[1] if found is not None else 0)
                        return
                    except Fenced:
                        found = await self.files.read(record.tree, record.path)

        await asyncio.gather(*(write(record, found) for record, found in changes))

    async def _check_not_erased(self, tree: str) -> None:
        """Raise BusUnavailable when the tree was erased meanwhile, perhaps with contents that were carried over.
        An erasure from now on finds them named."""
        lifecycle = await self.erasure.lifecycle(tree)
        if lifecycle is not None and isinstance(lifecycle[1], Erased):
            raise BusUnavailable(f"carrying the files of run {tree}", "it was erased meanwhile")


def _removal(record: WorkspaceFile) -> WorkspaceFile:
    """Return the record that removes a file which an earlier try has copied from another workspace."""
    return carried_over(
        WorkspaceFile(
            id=record.id,
            tree=record.tree,
            run=record.run,
            at=record.at,
            path=record.path,
            version=record.version,
        ),
        record.tree,
    )


def _is_settled(record: WorkspaceFile, found: _FencedFile | None) -> bool:
    """Return whether the file is what it should be, or an agent has written it since."""
    if found is None:
        return False
    known = found[0]
    return not is_carried(known) or (known.version, known.ref) == (record.version, record.ref)
