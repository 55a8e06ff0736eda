"""Writes the lines of a checked run file into this deployment's streams."""

import msgspec

from cadre.adapters.nats.reading.archive import NatsArchive
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.errors import Fenced
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
    snapshot: msgspec.Raw = msgspec.Raw(b"null")
    prev: list[int] = []


class _ImportedJournal(msgspec.Struct):
    """A journal as far as it is here."""

    seq: int = 0
    """The sequence of its last entry."""
    new_seqs: dict[int, int] = {}
    """Maps old sequences of entries to new ones, since the last snapshot."""


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
                case EntryLine(seq=old, entry=entry):
                    await self._take_entry(old, bytes(entry))
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

    async def _take_entry(self, old: int, data: bytes) -> None:
        head = msgspec.json.decode(data, type=EntryHead)
        journal = self._journals.setdefault(head.run, _ImportedJournal())
        found = self._present.get((head.run, head.n))
        seq = found[0] if found is not None else await self._append(head, journal, data)
        if bytes(head.snapshot) != b"null":
            journal.new_seqs.clear()
        journal.new_seqs[old] = seq
        journal.seq = seq
        self.last = max(self.last, seq)

    async def _append(self, head: EntryHead, journal: _ImportedJournal, data: bytes) -> int:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        fields["prev"] = msgspec.Raw(msgspec.json.encode([journal.new_seqs[old] for old in head.prev]))
        return await self._archive.append(self._tree, head.run, msgspec.json.encode(fields), journal.seq)


def contended(tree: str) -> Problem:
    """The 409 problem of an import that somebody else's writes get in the way of."""
    return Problem(
        409, "run-exists", f"somebody else writes to run {tree} here: look at it before you try again"
    )
