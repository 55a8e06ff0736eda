"""Writes the lines of a checked run file into this deployment's streams."""

import msgspec

from cadre.adapters.nats.reading.archive import NatsArchive
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.hash_chain import moved
from cadre.errors import Fenced
from cadre.journal.back_pointers import BackPointers
from cadre.ports import Blobs
from cadre.protocol.files import UNKNOWN_POSITION, WorkspaceFile
from cadre_gateway.requests.problems import Problem
from cadre_gateway.transfer.run_file import BlobPart, EntryLine, FileLine, Header, Line

StoredHere = dict[tuple[str, int], tuple[int, bytes]]
"""The entries of a tree that are here, by run and number: where each lies, and the digest of its content."""


class EntryHead(msgspec.Struct):
    """What an import needs of an entry; the rest is written as it came."""

    run: str
    n: int


class _ImportedJournal:
    """A journal as far as it is here."""

    def __init__(self) -> None:
        self.seq = 0
        """The sequence of its last entry."""
        self.pointers = BackPointers()


class RunWriter:
    """Takes the lines of one file in their order; entries that are here already are not written again."""

    def __init__(
        self, archive: NatsArchive, files: NatsFileIndex, blobs: Blobs, tree: str, present: StoredHere
    ) -> None:
        self._archive = archive
        self._files = files
        self._blobs = blobs
        self._tree = tree
        self._present = present
        self._blob = bytearray()
        self._journals: dict[str, _ImportedJournal] = {}
        self.last = 0
        """Sequence of the newest entry."""

    async def take(self, line: Header | Line) -> None:
        """Writes what the line holds. Raises a 409 problem when somebody else writes to the run, RetryableError."""
        try:
            match line:
                case BlobPart(data=data, last=last):
                    self._blob += data
                    if last:
                        await self._blobs.put(bytes(self._blob))
                        self._blob.clear()
                case EntryLine(entry=entry):
                    await self._take_entry(bytes(entry))
                case FileLine(file=file):
                    await self._take_file(file)
        except Fenced as error:
            raise contended(self._tree) from error

    async def _take_file(self, file: WorkspaceFile) -> None:
        """A file that is there already came with an import that was cut short, or was written since."""
        if await self._files.read(self._tree, file.path) is None:
            # It comes before all entries here, whichever it was written behind.
            history = [msgspec.structs.replace(one, seq=UNKNOWN_POSITION) for one in file.history]
            await self._files.write(msgspec.structs.replace(file, history=history), 0)

    async def _take_entry(self, data: bytes) -> None:
        head = msgspec.json.decode(data, type=EntryHead)
        journal = self._journals.setdefault(head.run, _ImportedJournal())
        found = self._present.get((head.run, head.n))
        seq = found[0] if found is not None else await self._append(head, journal, data)
        journal.pointers.note(seq)
        journal.seq = seq
        self.last = max(self.last, seq)

    async def _append(self, head: EntryHead, journal: _ImportedJournal, data: bytes) -> int:
        return await self._archive.append(
            self._tree, head.run, moved(data, journal.pointers.packed()), journal.seq
        )


def contended(tree: str) -> Problem:
    """The 409 problem of an import that somebody else's writes get in the way of."""
    return Problem(
        409, "run-exists", f"somebody else writes to run {tree} here: look at it before you try again"
    )
