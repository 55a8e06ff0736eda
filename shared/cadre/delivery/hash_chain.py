"""Journal entries as they are stored, and the hash chain: each entry seals itself and the entry before it, so that no
one changes, removes or reorders one unnoticed.

A stored entry leaves out all that follows from the rest of it:
- a field that has its default;
- its cause if `implied_cause` returns it, and the cause of a model call if it equals the entry's;
- the run's id where the id of one of its calls or records begins with it: a field's text that begins with `~` begins
  with the run's id, except that `~~` stands for one `~`.

An entry's hash is taken over the hash of the entry before and over the entry as it is stored, without its two last
fields: `prev`, which an import into another stream rewrites, and `hash` itself.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre.protocol.topology import model_call_id, report_id, result_id, task_id
from cadre.spec.kinds import DEFAULT

_encoder = msgspec.json.Encoder()
_HASH_BYTES = 16
_RUN = re.compile(rb'"run":\s*"([^"\\]*)"')
_TEXT = b':"'
"""Begins the text of a field: within a text the quotation mark has a backslash before it."""
_SPACED = b': "'
"""The same after another program has reformatted the JSON."""
_BEHIND = (b"_", b":", b'"')
"""Characters that can follow a run's id: those that continue the id of a call or of a record, and the closing quotation
mark."""
_PREV, _HASH = b',"prev":"', b',"hash":"'
_PACKED = re.compile(rb'[\w-]*"')


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
    """A link of the chain, read from an entry as it is stored."""

    run: str
    n: int
    hash: str = ""
    events: list[EventHead] = []


def encoded(entry: Entry) -> bytes:
    """Return the entry as it is stored, with the hash that it has."""
    cause = entry.cause if entry.cause != implied_cause(entry) else ""
    events = [_without_cause(event, entry.cause) for event in entry.events]
    # A text is left out where it is the very object that is the default.
    kind = DEFAULT if entry.kind == DEFAULT else entry.kind
    data = _encoder.encode(msgspec.structs.replace(entry, kind=kind, cause=cause, events=events))
    found = _RUN.search(data)
    assert found is not None, "an entry names its run first"
    head, rest = data[: found.end()], data[found.end() :]
    rest = rest.replace(_TEXT + b"~", _TEXT + b"~~")
    for behind in _BEHIND:
        rest = rest.replace(_TEXT + found[1] + behind, _TEXT + b"~" + behind)
    return head + rest


def seal(entry: Entry, before: str) -> Sealed:
    """Encode the entry with its hash. `before` is the hash of the entry before it, "" when that has none."""
    body, prev, _ = _parts(encoded(entry))
    hash_ = _hash(body, before)
    return Sealed(_joined(body, prev, hash_.encode()), hash_)


def completed(entry: Entry) -> Entry:
    """Fill in the causes that the entry, as decoded just now, was stored without; return the entry."""
    if not entry.cause:
        msgspec.structs.force_setattr(entry, "cause", implied_cause(entry))
    for event in entry.events:
        if type(event) is ev.ModelCalled and not event.cause:
            msgspec.structs.force_setattr(event, "cause", entry.cause)
    return entry


def implied_cause(entry: Entry) -> str:
    """Return the usual cause of an entry with this first event; "" if the event implies no cause."""
    match entry.events:
        case [ev.RunAccepted(), *_]:
            return task_id(entry.run)
        case [ev.ToolAnswered(call=call), *_]:
            return result_id(call)
        case [ev.DelegateFinished(call=call), *_]:
            return report_id(call)
        case [ev.ModelAnswered(purpose=purpose, step=step, attempt=attempt), *_]:
            return model_call_id(entry.run, purpose, step, attempt)
        case _:
            return ""


def _without_cause(event: ev.AnyEvent, cause: str) -> ev.AnyEvent:
    if type(event) is ev.ModelCalled and event.cause == cause:
        return msgspec.structs.replace(event, cause="")
    return event


def moved(data: bytes, prev: str) -> bytes:
    """Return the stored entry with its back-pointers replaced by the packed `prev`: its hash still holds."""
    body, _, hash_ = _parts(data)
    return _joined(body, prev.encode(), hash_)


def expanded(data: bytes) -> bytes:
    """Return the JSON of a stored entry with all ids in full."""
    if (found := _RUN.search(data)) is None:
        return data
    head, rest = data[: found.end()], data[found.end() :]
    for text in (_TEXT, _SPACED):
        for behind in _BEHIND:
            rest = rest.replace(text + b"~" + behind, text + found[1] + behind)
        rest = rest.replace(text + b"~~", text + b"~")
    return head + rest


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
        """Note the members whose answer a manager has although they have no journal, or one without an end: call it
        behind the last entry of a whole tree."""
        for member, (run, n) in self._answered.items():
            if member not in self._ended:
                missing = "its end is missing" if member in self._last else "its journal is missing"
                self.broken.append(Broken(run, n, f"the entry has the answer of run {member}, and {missing}"))

    @property
    def runs(self) -> int:
        """Return how many runs the entries were of."""
        return len(self._last)

    def take(self, data: bytes, wanted: Callable[[str], bool] = lambda run: True) -> None:
        """Check an entry, as it is stored, unless its run is not `wanted`; the entries of a run come in the order of
        their stream."""
        links = msgspec.json.decode(expanded(data), type=RunLinks)
        if not wanted(links.run):
            return
        last = self._last.get(links.run)
        before, known = (last.hash, last.n) if last else ("", 0)
        self._last[links.run] = links
        self.entries += 1
        self._note_ends(links)
        if links.n != known + 1:
            self._note(links, f"entry {links.n} follows entry {known}: entries are missing or out of order")
        if not links.hash or _hash(_parts(data)[0], before) != links.hash:
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


def _parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the body of an entry, all up to `prev` and `hash`, and these two."""
    body, _, hash_ = data.rpartition(_HASH) if data.rfind(_HASH) > data.rfind(b"]") else (data[:-1], b"", b'"}')
    start = body.rfind(_PREV)
    if start < 0 or _PACKED.fullmatch(body, start + len(_PREV)) is None:
        return body, b"", hash_[:-2]
    return body[:start], body[start + len(_PREV) : -1], hash_[:-2]


def _joined(body: bytes, prev: bytes, hash_: bytes) -> bytes:
    pointers = b'%s%s"' % (_PREV, prev) if prev else b""
    return b'%s%s%s%s"}' % (body, pointers, _HASH, hash_)


def _hash(body: bytes, before: str) -> str:
    found = hashlib.blake2b(before.encode(), digest_size=_HASH_BYTES)
    found.update(body)
    return urlsafe_b64encode(found.digest()).rstrip(b"=").decode()


async def whole_journal(last: Stored, read: Callable[[Sequence[int]], Awaitable[Iterable[Stored]]]) -> list[Stored]:
    """Return all entries of a run up to its `last`, in ascending order.

    `read` returns the entries at the given sequences. It is called once for each level of back-pointers, since the
    entries of one level name those of the level below: once up to FAN entries, twice up to FAN ** 2.
    """
    found = {last.seq: last}
    latest: Iterable[Stored] = [last]
    while missing := sorted({seq for one in latest for seq in one.entry.earlier} - found.keys()):
        latest = await read(missing)
        found |= {one.seq: one for one in latest}
    return [found[seq] for seq in sorted(found)]
