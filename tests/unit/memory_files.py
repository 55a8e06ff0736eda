"""A file index in memory, as its port says: for tests without a server."""

from cadre.delivery.workspace_store import WorkspaceStore
from cadre.errors import Fenced, OutcomeUnknown
from cadre.protocol.files import WorkspaceFile
from harness.memory_ports import MemoryBlobs


class MemoryIndex:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[WorkspaceFile, int]] = {}
        self.writes = 0
        self.lost_answers = 0
        """So many writes are stored, and their answers never come."""

    async def read(self, tree: str, path: str) -> tuple[WorkspaceFile, int] | None:
        return self.kept.get((tree, path))

    async def all(self, tree: str) -> list[WorkspaceFile]:
        return [record for (of, _), (record, _) in self.kept.items() if of == tree]

    async def count(self, tree: str) -> int:
        return len(await self.all(tree))

    async def write(self, record: WorkspaceFile, fence: int) -> int:
        known = self.kept.get((record.tree, record.path))
        if (known[1] if known else 0) != fence:
            raise Fenced("somebody was first")
        self.writes += 1
        self.kept[record.tree, record.path] = (record, self.writes)
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("writing", "lost")
        return self.writes


class MemoryFiles:
    """The workspaces of a deployment."""

    def __init__(self) -> None:
        self.index, self.blobs = MemoryIndex(), MemoryBlobs()

    def of(self, call: str, tree: str = "t", most_bytes: int = 1000) -> WorkspaceStore:
        return WorkspaceStore(self.index, self.blobs, tree=tree, call=call, by="tool", most_bytes=most_bytes)
