"""All collections of one directory, and their aliases; runs inside the engine's process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from cadre_memory.index.edge import frames
from cadre_memory.index.edge.shard import Shard
from cadre_memory.index.schema import dim_of
from cadre_memory.index.store import CollectionGone

_ALIASES = "aliases.json"
_UNFINISHED = ".unfinished"
_DROPPED = ".dropped"


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

    def do(self, request: frames.AnyRequest) -> Any:
        """Raises CollectionGone, and whatever the engine raises."""
        match request:
            case frames.Collections():
                return list(self._shards)
            case frames.Create(collection):
                self._create(collection)
            case frames.Drop(collection):
                self._drop(collection)
            case frames.Aliases():
                return self._aliases()
            case frames.PointAliases(aliases):
                self._point(aliases)
            case frames.Flush():
                self.flush()
            case frames.Vacuum():
                self.vacuum()
            case frames.Close():
                self.close()
            case _:
                return self._of_collection(request, self._shard(request.collection))
        return None

    def _of_collection(self, request: frames.AnyRequest, shard: Shard) -> Any:
        match request:
            case frames.Upsert(_, points, only_new):
                return shard.upsert(points, only_new)
            case frames.SetDense(_, vectors):
                return shard.set_dense(vectors)
            case frames.Search(_, query, selection):
                return shard.search(query, selection)
            case frames.Scroll(_, selection, limit, after, fields):
                return shard.scroll(selection, limit, after, fields)
            case frames.Count(_, selection):
                return shard.count(selection)
            case frames.Delete(_, selection):
                return shard.delete(selection)
            case _:
                raise AssertionError(request)

    def _shard(self, collection: str) -> Shard:
        try:
            return self._shards[collection]
        except KeyError:
            raise CollectionGone(f"there is no collection {collection}") from None

    def _create(self, collection: str) -> None:
        """Under another name until it is complete: a kill in between leaves nothing that looks like one."""
        if collection in self._shards:
            return
        unfinished = self._folder / f"{collection}{_UNFINISHED}"
        Shard.create(unfinished, dim_of(collection))
        unfinished.rename(self._folder / collection)
        _sync(self._folder)
        self._shards[collection] = Shard.load(self._folder / collection)

    def _drop(self, collection: str) -> None:
        if shard := self._shards.pop(collection, None):
            shard.close()
            dropped = (self._folder / collection).rename(self._folder / f"{collection}{_DROPPED}")
            _sync(self._folder)
            shutil.rmtree(dropped)

    def _aliases(self) -> dict[str, str]:
        try:
            return msgspec.json.decode((self._directory / _ALIASES).read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}

    def _point(self, changes: dict[str, str | None]) -> None:
        aliases = {**self._aliases(), **changes}
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
        for shard in self._shards.values():
            shard.flush()

    def vacuum(self) -> None:
        for shard in self._shards.values():
            shard.vacuum()

    @property
    def dirty(self) -> bool:
        return any(shard.dirty for shard in self._shards.values())

    @property
    def untidy(self) -> bool:
        return any(shard.untidy for shard in self._shards.values())

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()


def _sync(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
