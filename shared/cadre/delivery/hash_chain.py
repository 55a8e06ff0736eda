"""The hash chain of a journal: each entry seals itself and the entry before it, so that nobody changes, removes or
reorders one unseen.

An entry's hash is taken over the hash of the entry before and over the entry as it is stored, but for its two last
fields: `prev`, which an import into another stream rewrites, and `hash` itself. Entries of schema versions before 3
have none; the chain of a run begins with its first entry of version 3.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from cadre.journal.entry import Entry

_encoder = msgspec.json.Encoder()
_TAIL = b',"prev":['
_NO_HASH = b'"hash":""}'
_HASH_BYTES = 16
FIRST_VERSION = 3
"""The first schema version whose entries have a hash."""


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


class Chain(msgspec.Struct, kw_only=True):
    """What came of checking one run's journal."""

    entries: int = 0
    sealed: int = 0
    """Entries that have a hash; those before them are of earlier schema versions."""
    broken: list[Broken] = []


class RunLinks(msgspec.Struct):
    """What a link of the chain says of itself, read from an entry as it is stored."""

    v: int
    run: str
    n: int
    hash: str = ""


def seal(entry: Entry, before: str) -> Sealed:
    """Encodes the entry; `before` is the hash of the entry before it, "" when that has none."""
    data = _encoder.encode(entry)
    hash_ = _hash(data, before)
    return Sealed(b'%s"hash":"%s"}' % (data[: -len(_NO_HASH)], hash_.encode()), hash_)


def check_chain(journal: Iterable[bytes]) -> Chain:
    """Checks one run's entries, as they are stored, in the order of their stream."""
    chain, before, known = Chain(broken=[]), "", 0
    for data in journal:
        links = msgspec.json.decode(data, type=RunLinks)
        chain.entries += 1
        if links.n != known + 1:
            reason = f"entry {links.n} follows entry {known}: entries are missing or out of order"
            chain.broken.append(Broken(links.run, links.n, reason))
        if links.v >= FIRST_VERSION:
            chain.sealed += 1
            bare = data[: data.rindex(b'"hash":')] + _NO_HASH if links.hash else data
            if not links.hash or _hash(bare, before) != links.hash:
                reason = "its hash does not fit it and the entry before: one of them was changed or replaced"
                chain.broken.append(Broken(links.run, links.n, reason))
        elif before:
            chain.broken.append(Broken(links.run, links.n, "it has no hash, and the entry before has one"))
        before, known = links.hash, links.n
    return chain


def _hash(data: bytes, before: str) -> str:
    """Of an entry's JSON with an empty hash."""
    body = memoryview(data)[: data.rindex(_TAIL)]
    found = hashlib.blake2b(before.encode(), digest_size=_HASH_BYTES)
    found.update(body)
    return found.hexdigest()
