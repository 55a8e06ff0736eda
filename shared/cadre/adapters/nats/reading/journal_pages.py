"""The journals of a tree in stream order, each read by its own subject: that is what the server finds fast.

By a wildcard it looks through the whole stream, from the first entry on and behind the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage, TooManySubjects
from cadre.adapters.nats.streams.replica_tries import ReplicaTries
from cadre.errors import BusUnavailable

_REPLICA_SECONDS = 1.0

MERGED_RUNS = 16
"""The journals of more runs than that are looked for by the wildcard, which finds something everywhere then."""


class _Journal:
    """The entries of one run, up to its head."""

    def __init__(self, subject: str, after: int, head: int) -> None:
        self.subject, self.after, self.head = subject, after, head
        self.held: deque[StoredMessage] = deque()

    @property
    def is_read(self) -> bool:
        return self.after >= self.head

    async def read_on(self, nc: Client, stream: str, entries: int) -> None:
        page = await _page(nc, stream, self.subject, self.after, self.head, entries)
        self.held.extend(page)
        # What is not there any more was removed.
        self.after = page[-1].seq if page else self.head


async def journal_pages(
    nc: Client, stream: str, subject: str, after: int, at_least: int, entries: int
) -> AsyncIterator[list[StoredMessage]]:
    """Yield the entries of all journals on `subject` after sequence `after`, in pages of `entries` at most, until none
    is left. Any replica answers, and one that lags hides nothing up to `at_least`, the sequence of an entry that is
    there. Raise BusUnavailable where no replica has that entry within a second."""
    try:
        while heads := await _heads(nc, stream, subject, after, at_least):
            end = max(heads.values())
            if len(heads) > MERGED_RUNS:
                pages = _scanned(nc, stream, subject, after, end, entries)
            else:
                journals = [_Journal(one, after, head) for one, head in heads.items()]
                pages = _merged(nc, stream, journals, max(1, entries // len(journals)))
            async for page in pages:
                yield page
            after = end
    except TooManySubjects:
        for sure in (at_least, None):
            async for page in _scanned(nc, stream, subject, after, sure, entries):
                after = page[-1].seq
                yield page


async def _heads(nc: Client, stream: str, subject: str, after: int, at_least: int) -> dict[str, int]:
    """The last sequence of each journal that has one behind `after`. Raises TooManySubjects, BusUnavailable."""
    found: dict[str, int] = {}
    async for _ in ReplicaTries(_REPLICA_SECONDS):
        last = await jetstream.batch(nc, stream, {"multi_last": [subject]})
        found = {held.subject: held.seq for held in last if held.seq > after}
        if max([after, *found.values()]) >= at_least:
            return found
    if not await jetstream.following(nc, stream, subject, max([after, *found.values()])):
        return found  # it was removed
    raise BusUnavailable(f"reading from {stream}", f"no replica has message {at_least} yet")


async def _merged(
    nc: Client, stream: str, journals: list[_Journal], entries: int
) -> AsyncIterator[list[StoredMessage]]:
    while journals:
        for one in journals:
            while not one.held and not one.is_read:
                await one.read_on(nc, stream, entries)
        # Up to here nothing can be missing in between.
        sure = min((one.after for one in journals if not one.is_read), default=None)
        page: list[StoredMessage] = []
        for one in journals:
            while one.held and (sure is None or one.held[0].seq <= sure):
                page.append(one.held.popleft())
        journals = [one for one in journals if one.held or not one.is_read]
        if page:
            page.sort()
            yield page


async def _scanned(
    nc: Client, stream: str, subject: str, after: int, end: int | None, entries: int
) -> AsyncIterator[list[StoredMessage]]:
    while end is None or after < end:
        page = await _page(nc, stream, subject, after, end, entries)
        if not page:
            return
        after = page[-1].seq
        yield page


async def _page(
    nc: Client, stream: str, subject: str, after: int, end: int | None, entries: int
) -> list[StoredMessage]:
    """The next entries up to `end`; a replica that has none of them may lag behind the one that knew the end."""
    query = {"seq": after + 1, "batch": entries, "next_by_subj": subject}
    async for _ in ReplicaTries(_REPLICA_SECONDS):
        page = await jetstream.batch(nc, stream, query)
        if page or end is None:
            return [held for held in page if end is None or held.seq <= end]
    missed = await jetstream.following(nc, stream, subject, after)
    if missed is not None and end is not None and missed.seq <= end:
        raise BusUnavailable(f"reading from {stream}", f"no replica has message {missed.seq} yet")
    return []  # it was removed
