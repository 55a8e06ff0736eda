"""The hash chain of a journal: each entry seals itself and the entry before it, so that nobody changes, removes or
reorders one unseen.

An entry's hash is taken over the hash of the entry before and over the entry as it is stored, but for its two last
fields: `prev`, which an import into another stream rewrites, and `hash` itself.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cadre.journal.entry import Entry

_encoder = msgspec.json.Encoder()
_TAIL = b',"prev":['
_NO_HASH = b'"hash":""}'
_HASH_BYTES = 16


class Sealed(NamedTuple):
    """An entry as it is stored, and its hash."""

    data: bytes
    hash: str


class Broken(msgspec.Struct, frozen=True):
    """A place where a run's chain does not hold."""

    run: str
    n: int
    """Position of the entry that shows it."""
    reason: str


class EventHead(msgspec.Struct):
    """The part of an event that the check reads."""

    type: str
    call: Any = None
    state: Any = None


class RunLinks(msgspec.Struct):
    """What a link of the chain says of itself, read from an entry as it is stored."""

    run: str
    n: int
    hash: str = ""
    events: list[EventHead] = []


def seal(entry: Entry, before: str) -> Sealed:
    """Encodes the entry; `before` is the hash of the entry before it, "" when that has none."""
    data = _encoder.encode(entry)
    hash_ = _hash(data, before)
    return Sealed(b'%s"hash":"%s"}' % (data[: -len(_NO_HASH)], hash_.encode()), hash_)


class ChainCheck:
    """Checks the chains of runs, entry by entry: of each run it keeps the number and the hash of the last one."""

    def __init__(self) -> None:
        self.entries = 0
        self.broken: list[Broken] = []
        self._last: dict[str, RunLinks] = {}
        self._ended: set[str] = set()
        self._answered: dict[str, tuple[str, int]] = {}
        """Members that have given an answer, each with the entry of its manager that has the answer."""

    def check_members(self) -> None:
        """Notes the members whose answer a manager has although they have no journal, or one without an end: call it
        behind the last entry of a whole tree."""
        for member, (run, n) in self._answered.items():
            if member not in self._ended:
                missing = "its end is missing" if member in self._last else "its journal is missing"
                self.broken.append(Broken(run, n, f"the entry has the answer of run {member}, and {missing}"))

    @property
    def runs(self) -> int:
        """How many runs the entries were of."""
        return len(self._last)

    def take(self, data: bytes, wanted: Callable[[str], bool] = lambda run: True) -> None:
        """Checks an entry, as it is stored, unless its run is none of those `wanted`; the entries of a run come in the
        order of their stream."""
        links = msgspec.json.decode(data, type=RunLinks)
        if not wanted(links.run):
            return
        last = self._last.get(links.run)
        before, known = (last.hash, last.n) if last else ("", 0)
        self._last[links.run] = links
        self.entries += 1
        self._note_ends(links)
        if links.n != known + 1:
            self._note(links, f"entry {links.n} follows entry {known}: entries are missing or out of order")
        if not links.hash or _found_hash(data, before) != links.hash:
            self._note(
                links,
                "its hash does not fit it and the entry before: one of them was changed or replaced",
            )

    def _note_ends(self, links: RunLinks) -> None:
        for event in links.events:
            if event.type == "run.finished":
                self._ended.add(links.run)
            elif event.type == "delegate.finished" and event.state in ("success", "max_steps_error"):
                self._answered[event.call] = (links.run, links.n)

    def _note(self, links: RunLinks, reason: str) -> None:
        self.broken.append(Broken(links.run, links.n, reason))


def _found_hash(data: bytes, before: str) -> str:
    """Return the hash of an entry as it is stored, "" of one in another form than entries are stored in."""
    end = data.rfind(b'"hash":')
    return _hash(data[:end] + _NO_HASH, before) if _TAIL in data[: max(end, 0)] else ""


def _hash(data: bytes, before: str) -> str:
    """Of an entry's JSON with an empty hash."""
    body = memoryview(data)[: data.rindex(_TAIL)]
    found = hashlib.blake2b(before.encode(), digest_size=_HASH_BYTES)
    found.update(body)
    return found.hexdigest()
