"""Stores the files of a tree's workspace: an index of versions by path, and content in the blob store."""

import time
from collections import Counter

from cadre.delivery.retry import retry
from cadre.errors import BlobMissing, Fenced, OutcomeUnknown, TooLarge
from cadre.ports import Blobs, FileIndex
from cadre.protocol.files import FileWritten, WorkspaceFile, history_before_next, is_blob_ref
from cadre.protocol.messages import FileInfo
from cadre.tools.files import File, media_type_of
from cadre.tools.workspace import FileChanged, FileEntry, NoSuchFile, WorkspaceError, normal_path

MAX_FILES = 1000
"""Files in one workspace: its list is read whole."""

_MAX_HISTORY = 64
"""The last versions of a file: a write that made one of them is recognized when it is repeated."""

_MAX_NAMED = 20
"""Files that an error names."""

_Content = dict[str, str | int]
"""The fields `ref`, `media_type` and `size` of a WorkspaceFile; empty for a file that is deleted."""


class WorkspaceStore:
    """Implements `cadre.tools.workspace.Workspace` for one call or one request.

    A write that is repeated with the same `call` id is the same write: it takes place once. `by` is the tool that
    writes, or `gateway`; `most_bytes` bounds the size of one file.
    """

    def __init__(self, index: FileIndex, blobs: Blobs, *, tree: str, call: str, by: str, most_bytes: int) -> None:
        self._index = index
        self._blobs = blobs
        self._tree = tree
        self._call = call
        self._by = by
        self._most = most_bytes
        self._writes: Counter[str] = Counter()

    async def read(self, path: str) -> File:
        path = normal_path(path)
        found = await retry(lambda: self._index.read(self._tree, path))
        record = found[0] if found is not None else None
        if record is None or record.ref is None:
            raise NoSuchFile(await self._not_found(path))
        ref = record.ref
        file = File.from_json(ref)
        about = FileInfo(ref=ref, name=path.rpartition("/")[2], media_type=record.media_type)
        file.load(await retry(lambda: self._blobs.get(ref)), about)
        return file

    async def write(
        self, path: str, content: bytes | str | File, *, media_type: str = "", expected: int | None = None
    ) -> FileEntry:
        path = normal_path(path)
        data, wanted_type = _content(content, media_type)
        if len(data) > self._most:
            raise TooLarge(f"file {path}", len(data), self._most)
        ref = await retry(lambda: self._blobs.put(data))
        content_now: _Content = {
            "ref": ref,
            "media_type": media_type_of(data, path, wanted_type),
            "size": len(data),
        }
        return _entry(await self._put(path, self._key(path), expected, content_now))

    async def delete(self, path: str) -> None:
        path = normal_path(path)
        found = await retry(lambda: self._index.read(self._tree, path))
        key = self._key(path)
        if found is None or (found[0].ref is None and not _earlier_write(found[0], key, "")):
            raise NoSuchFile(await self._not_found(path))
        await self._put(path, key, None, {})

    async def files(self) -> list[FileEntry]:
        records = await retry(lambda: self._index.all(self._tree))
        return sorted((_entry(one) for one in records if one.ref is not None), key=lambda one: one.path)

    async def blob(self, ref: str) -> bytes:
        if not is_blob_ref(ref):
            raise BlobMissing(ref)
        return await retry(lambda: self._blobs.get(ref))

    async def _put(self, path: str, key: str, expected: int | None, content: _Content) -> WorkspaceFile:
        """Put the next version of the path in the place of the present one."""
        return await retry(lambda: self._put_once(path, key, expected, content))

    async def _put_once(self, path: str, key: str, expected: int | None, content: _Content) -> WorkspaceFile:
        record, fence = await self._index.read(self._tree, path) or (None, 0)
        ref = str(content.get("ref", ""))
        if record is not None and (done := _earlier_write(record, key, ref)):
            # It took place, and its outcome was never heard of; another one may have followed since.
            return self._version(path, done, [], content)
        await self._check_write(path, record, expected, content)
        written = FileWritten(record.version + 1 if record is not None else 1, key, ref)
        history = history_before_next(record, fence) if record is not None else []
        version = self._version(path, written, history, content)
        try:
            await self._index.write(version, fence)
        except Fenced as error:
            raise OutcomeUnknown(f"writing file {path}", error) from error
        return version

    async def _check_write(
        self, path: str, record: WorkspaceFile | None, expected: int | None, content: _Content
    ) -> None:
        """Raise FileChanged, and WorkspaceError when the workspace is full."""
        current = record.version if record is not None and record.ref is not None else 0
        if expected is not None and expected != current:
            there = f"it has version {current}" if current else "there is none"
            raise FileChanged(f"file {path} is not at version {expected} any more: {there}: read it again")
        if content and not current and await self._index.count(self._tree) >= MAX_FILES:
            raise WorkspaceError(
                f"file {path} was not written: the workspace has {MAX_FILES} files, which is the limit"
            )

    def _version(self, path: str, written: FileWritten, history: list[FileWritten], content: _Content) -> WorkspaceFile:
        return WorkspaceFile(
            id=f"{self._tree}:file:{path}:{written.version}",
            tree=self._tree,
            run=self._tree,
            at=time.time(),
            path=path,
            version=written.version,
            by=self._by,
            history=[*history, written][-_MAX_HISTORY:],
            **content,  # type: ignore[arg-type]
        )

    async def _not_found(self, path: str) -> str:
        names = [entry.path for entry in await self.files()]
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        there = f"there are: {', '.join(names[:_MAX_NAMED])}{more}" if names else "the workspace is empty"
        return f"there is no file {path!r} in the workspace; {there}"

    def _key(self, path: str) -> str:
        self._writes[path] += 1
        return f"{self._call}#{self._writes[path]}"


def _earlier_write(record: WorkspaceFile, key: str, ref: str) -> FileWritten | None:
    """Return the write when it took place before."""
    return next((one for one in record.history if (one.by, one.ref) == (key, ref)), None)


def _content(content: bytes | str | File, media_type: str) -> tuple[bytes, str]:
    if isinstance(content, File):
        return content.data, media_type or content.media_type
    if isinstance(content, str):
        return content.encode(), media_type
    return bytes(content), media_type


def _entry(record: WorkspaceFile) -> FileEntry:
    return FileEntry(
        path=record.path,
        size=record.size,
        media_type=record.media_type,
        version=record.version,
        at=record.at,
        by=record.by,
        ref=record.ref or "",
    )
