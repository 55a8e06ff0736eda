"""Opens the index: on a Qdrant server where one is named, else in a file."""

from pathlib import Path

from cadre.errors import SettingError, SetupError
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.schema import Schema
from cadre_memory.index.store import Store
from cadre_memory.index.vector_index import IndexRefused

OLDEST_SERVER = (1, 19)
"""The first version of Qdrant that counts how rare a word is within a filter."""


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
    from cadre_memory.index.sqlite_store import SqliteStore

    return await SqliteStore.open(directory)


async def _open_server(url: str, api_key: str) -> Store:
    if not url.startswith(("http://", "https://")):
        raise SettingError(f"QDRANT_URL={url}: must begin with http:// or https://")
    from cadre_memory.index.qdrant_store import QdrantStore

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
