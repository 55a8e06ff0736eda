"""Sweep an object store: remove the chunks that no entry names, left by writers that were killed or cancelled.

An entry that a listing lacks may only be late, so the leader of the stream is asked before anything is removed."""

import asyncio
import logging
from collections.abc import Iterable

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.object_store import NatsObjects
from cadre.adapters.nats.streams import jetstream, listing

log = logging.getLogger("cadre.objects")

_AT_ONCE = 32


class _Entry(msgspec.Struct):
    nuid: str = ""
    deleted: bool = False


async def sweep(nc: Client, objects: NatsObjects, before: float) -> int:
    """Removes the chunks that no entry names when the last of them was stored before that (Unix seconds of the
    server); returns of how many objects. Raises RetryableError."""
    # In this order: an entry comes after its chunks.
    chunks = await listing.subjects(nc, objects.stream, objects.chunks("*"))
    unnamed = set(chunks) - await _named(nc, objects)
    old = [subject for subject in unnamed if await _was_stored_before(nc, objects, subject, before)]
    if not old:
        return 0
    named = await _surely_named(nc, objects)
    swept = [subject for subject in old if subject not in named]
    for subject in swept:
        await jetstream.purge(nc, objects.stream, subject)
    if swept:
        log.info("parts of %d objects that were never stored whole are removed", len(swept))
    return len(swept)


async def _named(nc: Client, objects: NatsObjects) -> set[str]:
    """Returns the subjects of chunks that entries name, as any replica has them."""
    entries = [held.data async for held in listing.messages(nc, objects.stream, objects.entries)]
    return _chunks_of(objects, entries)


async def _surely_named(nc: Client, objects: NatsObjects) -> set[str]:
    """Returns the subjects of chunks that entries name, as the stream's leader has them."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(subject: str) -> bytes:
        async with slots:
            held = await jetstream.last(nc, objects.stream, subject)
            return held.data if held is not None else b""

    subjects = await listing.subjects(nc, objects.stream, objects.entries)
    return _chunks_of(objects, await asyncio.gather(*map(one, subjects)))


def _chunks_of(objects: NatsObjects, entries: Iterable[bytes]) -> set[str]:
    found = set()
    for data in entries:
        try:
            entry = msgspec.json.decode(data, type=_Entry)
        except msgspec.DecodeError:
            continue  # nobody can find chunks by it
        if not entry.deleted:
            found.add(objects.chunks(entry.nuid))
    return found


async def _was_stored_before(nc: Client, objects: NatsObjects, subject: str, before: float) -> bool:
    """Return whether the last message on the subject is that old; False when there is none (any more)."""
    held = await jetstream.last(nc, objects.stream, subject)
    return held is not None and held.at < before
