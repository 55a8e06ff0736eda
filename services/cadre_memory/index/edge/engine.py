"""All collections of one directory, and their aliases; runs inside the engine's process."""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from cadre_memory.index.edge.shard import Shard
from cadre_memory.index.filters import PointSelector
from cadre_memory.index.schema import dim_of
from cadre_memory.index.store import CollectionGone, Point, Query

_ALIASES = "aliases.json"
_UNFINISHED = ".unfinished"
_DROPPED = ".dropped"


ARGUMENTS: dict[str, Any] = {
    "collections": tuple[()],
    "create": tuple[str],
    "drop": tuple[str],
    "aliases": tuple[()],
    "set_aliases": tuple[dict[str, str | None]],
    "upsert": tuple[str, list[Point], bool],
    "set_dense": tuple[str, dict[str, list[list[float]]]],
    "search": tuple[str, Query, PointSelector],
    "scroll": tuple[str, PointSelector, int, str | None, list[str] | None],
    "count": tuple[str, PointSelector],
    "delete": tuple[str, PointSelector],
    "flush": tuple[()],
    "vacuum": tuple[()],
    "close": tuple[()],
}
"""The operations that a request can name, and what their arguments are."""

_OF_SHARD = ("upsert", "set_dense", "search", "scroll", "count", "delete")
"""Operations on one collection, which their first argument names."""


class Engine:
    """What a directory holds: `collections/<name>/` for each collection, `aliases.json`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folder = directory / "collections"
        self._folder.mkdir(parents=True, exist_ok=True)
        for folder in self._folder.iterdir():
            if folder.suffix in (_UNFINISHED, _DROPPED):
                shutil.rmtree(folder)
        self._shards = {folder.name: Shard.load(folder) for folder in sorted(self._folder.iterdir())}

    def do(self, operation: str, arguments: bytes | msgspec.Raw) -> Any:
        """Calls the method that is named and returns its value; `arguments` is msgpack.

        Raises CollectionGone, and whatever the engine raises.
        """
        values = msgspec.msgpack.decode(arguments, type=ARGUMENTS[operation])
        if operation in _OF_SHARD:
            return getattr(self._shard(values[0]), operation)(*values[1:])
        return getattr(self, operation)(*values)

    def collections(self) -> list[str]:
        """Returns the names of all collections."""
        return list(self._shards)

    def _shard(self, collection: str) -> Shard:
        try:
            return self._shards[collection]
        except KeyError:
            raise CollectionGone(f"there is no collection {collection}") from None

    def create(self, collection: str) -> None:
        """Creates a collection, under another name until it is complete: a kill leaves nothing that looks like one."""
        if collection in self._shards:
            return
        unfinished = self._folder / f"{collection}{_UNFINISHED}"
        Shard.create(unfinished, dim_of(collection))
        unfinished.rename(self._folder / collection)
        _sync(self._folder)
        self._shards[collection] = Shard.load(self._folder / collection)

    def drop(self, collection: str) -> None:
        """Removes a collection; does nothing when it is not there."""
        if shard := self._shards.pop(collection, None):
            shard.close()
            dropped = (self._folder / collection).rename(self._folder / f"{collection}{_DROPPED}")
            _sync(self._folder)
            shutil.rmtree(dropped)

    def aliases(self) -> dict[str, str]:
        """Returns the collection that each alias names."""
        try:
            return msgspec.json.decode((self._directory / _ALIASES).read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}

    def set_aliases(self, changes: dict[str, str | None]) -> None:
        """Sets aliases and removes those to None, all at once and durably. Raises CollectionGone."""
        aliases = {**self.aliases(), **changes}
        for collection in changes.values():
            if collection is not None:
                self._shard(collection)
        written = self._directory / f"{_ALIASES}.new"
        with written.open("wb") as file:
            file.write(msgspec.json.encode({name: to for name, to in aliases.items() if to is not None}))
            file.flush()
            os.fsync(file.fileno())
        written.rename(self._directory / _ALIASES)
        _sync(self._directory)

    def flush(self) -> None:
        """Brings everything that is only in the log to the disk."""
        for shard in self._shards.values():
            shard.flush()

    def vacuum(self) -> None:
        """Rewrites the files of collections where points were replaced or removed."""
        for shard in self._shards.values():
            shard.vacuum()

    @property
    def dirty(self) -> bool:
        """Whether something is in the log and not on the disk."""
        return any(shard.dirty for shard in self._shards.values())

    @property
    def untidy(self) -> bool:
        """Whether a collection has something to vacuum."""
        return any(shard.untidy for shard in self._shards.values())

    def close(self) -> None:
        """Flushes and closes all collections."""
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()


def _sync(folder: Path) -> None:
    """Brings a folder to the disk, and with it the renames in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
