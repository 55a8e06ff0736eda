"""Opens the index: on a Qdrant server where one is named, else on the embedded engine, else on the client's own."""

import importlib.util
import logging
import os
from pathlib import Path

from cadre.errors import SettingError, SetupError
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.schema import Schema
from cadre_memory.index.store import Store
from cadre_memory.index.vector_index import IndexRefused

log = logging.getLogger("cadre.memory")

OLDEST_SERVER = (1, 19)
"""The first version of Qdrant that counts how rare a word is within a filter."""

_MAX_LOCAL_POINTS = 20_000


async def open_index(
    own: Schema, *, qdrant_url: str = "", api_key: str = "", directory: Path, prefix: str = "mem"
) -> MemoryIndex:
    """Returns the index, ready to be used; `prefix` begins the names of its collections.

    Raises SetupError when it cannot be used as configured, IndexUnavailable when a server does not answer (yet).
    """
    if "__" in prefix or not prefix:
        raise SettingError(f"{prefix!r} cannot begin the names of collections: one '_' at a time")
    try:
        store = await _open_store(qdrant_url, api_key, directory)
    except IndexRefused as error:
        raise SetupError(str(error)) from error
    try:
        return await MemoryIndex.open(store, own, prefix=prefix)
    except BaseException:
        await store.close()
        raise


async def _open_store(qdrant_url: str, api_key: str, directory: Path) -> Store:
    if qdrant_url:
        return await _open_server(qdrant_url, api_key)
    if os.name == "posix" and importlib.util.find_spec("qdrant_edge") is not None:
        from cadre_memory.index.edge.store import EdgeStore

        return await EdgeStore.open(directory / "edge")
    from cadre_memory.index.qdrant.store import QdrantStore

    log.warning(
        "no embedded engine for this platform (qdrant-edge-py): the client's own is used, which keeps everything in"
        " memory and is slow beyond %d memories; set QDRANT_URL to a server",
        _MAX_LOCAL_POINTS,
    )
    return QdrantStore.local(directory / "local")


async def _open_server(url: str, api_key: str) -> Store:
    if not url.startswith(("http://", "https://")):
        raise SettingError(f"QDRANT_URL={url}: must begin with http:// or https://")
    from cadre_memory.index.qdrant.store import QdrantStore

    store = QdrantStore.server(url, api_key)
    try:
        version = await store.version()
        if version < OLDEST_SERVER:
            raise SetupError(
                f"the Qdrant server at {url} is of version {'.'.join(map(str, version))}: it must be"
                f" {'.'.join(map(str, OLDEST_SERVER))} or newer"
            )
    except BaseException:
        await store.close()
        raise
    return store
