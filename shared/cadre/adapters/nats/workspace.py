"""The index of a tree's files: one message per path, next to the effects of the tree; each version replaces the last.

The server's leader is asked throughout: a file that was just written is found at once, from anywhere.
"""

import asyncio

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.delivery.codec import HEADERS
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.topology import Subject, Topology

_AT_ONCE = 32
_HEADERS = {**HEADERS, jetstream.ROLLUP: "sub"}


class NatsFileIndex:
    """ports.FileIndex on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, path: str) -> tuple[WorkspaceFile, int] | None:
        return await self._last(tree, self._topology.file(tree, path))

    async def all(self, tree: str) -> list[WorkspaceFile]:
        return [record for record, _ in await self.versions(tree)]

    async def versions(self, tree: str) -> list[tuple[WorkspaceFile, int]]:
        """Return `all`, each with its fence: its sequence in the stream of the tree."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(subject: str) -> tuple[WorkspaceFile, int] | None:
            async with slots:
                return await self._last(tree, subject)

        found = await asyncio.gather(*map(one, await self._subjects(tree)))
        return list(filter(None, found))

    async def count(self, tree: str) -> int:
        return len(await self._subjects(tree))

    async def write(self, record: WorkspaceFile, fence: int) -> int:
        return await self._version(record.tree, self._topology.file(record.tree, record.path)).write(record, fence)

    async def _last(self, tree: str, subject: str) -> tuple[WorkspaceFile, int] | None:
        record, fence = await self._version(tree, subject).read()
        return None if record is None else (record, fence)

    def _version(self, tree: str, subject: str) -> FencedValue[WorkspaceFile]:
        return FencedValue(self._nc, self._topology.stream_of(tree), subject, WorkspaceFile, _HEADERS)

    async def _subjects(self, tree: str) -> list[str]:
        return await jetstream.subjects(
            self._nc, self._topology.stream_of(tree), self._topology.subject(Subject.FILE, tree=tree)
        )
