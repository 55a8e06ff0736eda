"""Searches the files of a run's workspace.

A file is cut and stored when a search first meets that version of it, in the run's own scope: so it needs no service
that watches workspaces, and goes with its run. Which versions count is asked of the workspace at each search.
"""

import codecs
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from cadre.errors import BlobMissing
from cadre.protocol.memory import RESOURCE, ResourceHit, Resources
from cadre.tools.workspace import FileEntry, Workspace
from cadre_memory.index import scopes
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Where
from cadre_memory.tools.cards import MAX_TEXT_CHARS, QueryResources
from cadre_memory.tools.chunks import About, chunk_id
from cadre_memory.tools.keep import Workers, keep_text

_VERSIONS_KEPT = 64
"""How many versions a workspace keeps of a file."""

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class ResourceSearch:
    """Serves the tool `query_resources`. `workspace_of` opens the workspace of a caller's run."""

    def __init__(
        self, index: MemoryIndex, workers: Workers, workspace_of: Callable[[Caller], Workspace]
    ) -> None:
        self._index = index
        self._workers = workers
        self._workspace_of = workspace_of

    async def query(self, wanted: QueryResources, caller: Caller, now: float) -> Any:
        """Returns the tool's output, a `Resources`. Raises what the index, the bus and the blob store raise."""
        workspace = self._workspace_of(caller)
        files = [file for file in await workspace.files() if _is_wanted(file.path, wanted.paths)]
        skipped: dict[str, str] = {}
        found: dict[str, FileEntry] = {}
        for file in files:
            reason = await self._store(file, workspace, caller, now)
            if reason:
                skipped[file.path] = reason
            else:
                found[_resource_id(caller.tree, file)] = file
        where = Where(kinds=[RESOURCE], memories=list(found))
        outcome = await self._workers.searcher.search(
            wanted.query, scopes.of_tree(caller.tree), where, wanted.k
        )
        hits = [
            ResourceHit(
                path=found[hit.chunk.memory].path,
                version=found[hit.chunk.memory].version,
                passage=hit.chunk.index,
                text=hit.chunk.text,
                score=hit.score,
            )
            for hit in outcome.hits
        ]
        why = outcome.why if found else "there is no file to search"
        return msgspec.to_builtins(Resources(hits=hits, skipped=skipped, degraded=outcome.degraded, why=why))

    async def _store(self, file: FileEntry, workspace: Workspace, caller: Caller, now: float) -> str:
        """Stores the passages of this version unless that is done; returns why it cannot be searched, if so."""
        resource = _resource_id(caller.tree, file)
        within = scopes.of_tree(caller.tree)
        known = await self._index.scroll(within=within, where=Where(ids=[chunk_id(resource, 0)]), limit=1)
        if known.chunks:
            return ""
        try:
            text = read_text(await workspace.blob(file.ref))
        except BlobMissing:
            return "its content is gone"
        if text is None:
            return f"it is no text ({file.media_type})"
        if len(text) > MAX_TEXT_CHARS:
            return f"it has {len(text)} characters, and {MAX_TEXT_CHARS} can be searched"
        about = About(scope="run", kind=RESOURCE, step=caller.step, created_at=now, expires_at=None)
        if not await keep_text(text, resource, caller, about, self._workers):
            return "it holds nothing but blanks"
        earlier = [
            _resource_id(caller.tree, msgspec.structs.replace(file, version=version))
            for version in range(max(1, file.version - _VERSIONS_KEPT), file.version)
        ]
        if earlier:
            await self._index.delete(within=within, where=Where(memories=earlier))
        return ""


def _resource_id(tree: str, file: FileEntry) -> str:
    """Returns the id under which the passages of this version of a file are stored."""
    path = hashlib.sha256(file.path.encode()).hexdigest()[:16]
    return f"{tree}_resource_{path}_{file.version}"


def _is_wanted(path: str, paths: list[str] | None) -> bool:
    return paths is None or any(
        path == one or (one.endswith("/") and path.startswith(one))
        for one in (one.removeprefix("./") for one in paths)
    )


def read_text(data: bytes) -> str | None:
    """Returns the text of a file in UTF-8, or in UTF-16 with its mark; None for one that is no text."""
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
