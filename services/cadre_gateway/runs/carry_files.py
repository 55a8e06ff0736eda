"""Gives a run that goes on from another one the files of that one's workspace, before it begins.

What is carried are the entries of the index, the contents stay where they are: whoever erases one of the two runs
leaves alone what the other one names. The task of the run comes last, so a run never begins with a part of its files;
whoever repeats a request that was cut short completes what is there.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from cadre.delivery.workspace_store import MOST_FILES
from cadre.errors import BusUnavailable, Fenced
from cadre.protocol.files import WorkspaceFile, as_of, carried, is_carried
from cadre.protocol.messages import Erased
from cadre_gateway.desk import Desk
from cadre_gateway.requests.problems import invalid

_AT_ONCE = 64

_Place = tuple[WorkspaceFile, int]
"""A record of an index, and its fence."""


class Source(NamedTuple):
    """The workspace that another one begins with."""

    tree: str
    point: int | None = None
    """Sequence in the stream of the tree's journals: as it was before that. None: as it is."""
    is_exact: bool = True
    """Whether that is the point that was asked for."""


async def carry(desk: Desk, source: Source | None, tree: str) -> list[str]:
    """Makes the workspace of a run that is about to begin that of `source` (None: empty), beside the files that the
    run was given itself.

    Returns the paths of which the version of the point cannot be told: they are as they are in the source now. Raises
    a 422 problem, RetryableError.
    """
    there = {record.path: (record, seq) for record, seq in await desk.files.held(tree)}
    if there and await desk.history.task(tree, tree) is not None:
        return []  # another try of this request has come to its end
    wanted, later = await _files(desk, source) if source is not None else ({}, [])
    own = {path for path, (record, _) in there.items() if record.ref is not None and not is_carried(record)}
    if (number := len(own | wanted.keys())) > MOST_FILES:
        raise invalid(
            f"the run would begin with {number} files, those of run {source.tree if source else tree} among them:"
            f" a workspace has at most {MOST_FILES}; give it fewer, or begin afresh (reset=true)"
        )
    changes = [carried(record, tree) for record in wanted.values()]
    changes += [_removed(record) for path, (record, _) in there.items() if path not in wanted]
    await _put(desk, [(record, there.get(record.path)) for record in changes])
    if source is not None:
        await _check_there(desk, source.tree)
    return later


async def _files(desk: Desk, source: Source) -> tuple[dict[str, WorkspaceFile], list[str]]:
    wanted: dict[str, WorkspaceFile] = {}
    later = []
    for record, seq in await desk.files.held(source.tree):
        found = as_of(record, seq, source.point)
        if found.file is not None:
            wanted[record.path] = found.file
        if not (found.is_certain and source.is_exact):
            later.append(record.path)
    return wanted, sorted(later)


def _removed(record: WorkspaceFile) -> WorkspaceFile:
    """Of a file that an earlier try has carried from somewhere else."""
    return carried(
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


async def _put(desk: Desk, changes: list[tuple[WorkspaceFile, _Place | None]]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(record: WorkspaceFile, found: _Place | None) -> None:
        async with slots:
            while not _is_settled(record, found):
                try:
                    await desk.files.write(record, found[1] if found is not None else 0)
                    return
                except Fenced:
                    found = await desk.files.read(record.tree, record.path)

    await asyncio.gather(*(one(record, found) for record, found in changes))


def _is_settled(record: WorkspaceFile, found: _Place | None) -> bool:
    """Whether the file is what it should be, or somebody has written it who knows better."""
    if found is None:
        return False
    known = found[0]
    return not is_carried(known) or (known.version, known.ref) == (record.version, record.ref)


async def _check_there(desk: Desk, tree: str) -> None:
    """Raises BusUnavailable when the tree was erased meanwhile, perhaps with contents that were carried. Whoever
    erases it from now on finds them named."""
    fate = await desk.erasure.fate(tree)
    if fate is not None and isinstance(fate[1], Erased):
        raise BusUnavailable(f"carrying the files of run {tree}", "it was erased meanwhile")
