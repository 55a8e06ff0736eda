"""Keep the order of what people send to a run.

Each record names the record that was stored before it. Before a record is taken up, the earlier ones that are still
pending are taken up (decision 0039)."""

import logging
from collections.abc import Awaitable, Callable

from cadre.delivery.codec import unpack_record
from cadre.errors import BlobMissing, UnreadableMessage
from cadre.ports import Blobs, FindSent
from cadre.protocol.messages import (
    Cancel,
    Decision,
    Edit,
    Follows,
    FromPeople,
    PersonsRecord,
    Record,
    Signal,
    UserMessage,
)

log = logging.getLogger("cadre.agent")

MOST_BEHIND = 256
"""Records that are taken up before another one."""


def follows_of(record: FromPeople, before: Record | None, seq: int) -> Follows | None:
    """Return what the record follows, `before` being the last on its subject, which lies at `seq`."""
    if not isinstance(before, PersonsRecord):
        return None
    # A cancel waits for nothing, and nothing for it; a record that is sent again does not follow itself.
    is_passed = isinstance(before, Cancel) or before.id == record.id
    return before.follows if is_passed else Follows(before.id, seq)


async def read_record(data: bytes, blobs: Blobs) -> Record | None:
    """Return a stored record, None when this process cannot read it. Raises RetryableError."""
    try:
        return await unpack_record(data, blobs)
    except (UnreadableMessage, BlobMissing) as error:
        log.warning("a record is passed over: %s", error)
        return None


async def left_behind(
    record: Record, is_known: Callable[[str], Awaitable[bool]], find: FindSent, blobs: Blobs
) -> list[FromPeople]:
    """Return the records that were stored before this one and that its run does not account for yet, the oldest first.
    `is_known` says whether it does, by a record's id. Raises RetryableError."""
    found: list[FromPeople] = []
    before = record.follows if isinstance(record, Decision | Signal | UserMessage | Edit) else None
    while before is not None and len(found) < MOST_BEHIND and not await is_known(before.id):
        stored = await find(record.tree, before.seq)
        if stored is None or stored.address.leaf != record.run:
            break
        earlier = await read_record(stored.data, blobs)
        if not isinstance(earlier, Decision | Signal | UserMessage | Edit):
            break
        found.append(earlier)
        before = earlier.follows
    return found[::-1]
