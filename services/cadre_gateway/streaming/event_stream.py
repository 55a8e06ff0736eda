"""A run's events as Server-Sent Events.

`id:` stands on the last event of an entry only, so a client that lost the connection within an entry gets
that entry again as a whole.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cadre.delivery.codec import encode
from cadre.journal import entry as journal
from cadre.journal.parts import JournalEvent
from cadre.journal.unions import whole
from cadre.ports import Stored
from cadre.protocol.deltas import Delta
from cadre.protocol.topology import tree_of
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.streaming.follow import EndOfRun, Follower, Notice
from cadre_gateway.streaming.live_feeds import LiveFeeds

PING_SECONDS = 15.0

RETRY = b"retry: 1000\n\n"
NOTICES = {
    Notice.IDLE: b": ping\n\n",
    Notice.UNREACHABLE: b": NATS does not answer, waiting\n\n",
    Notice.DRAINING: b": this gateway is stopping, come back with Last-Event-ID\nretry: 1000\n\n",
}

WatchDeltas = Callable[[str, Callable[[Delta], None]], Awaitable[Callable[[], None]]]
"""Calls back with each piece of an answer that is written in a tree; returns what ends that."""


class Shown(msgspec.Struct, frozen=True):
    """The data of one event."""

    seq: int
    n: int
    run: str
    parent: str | None
    agent: str
    at: float
    event: "journal.AnyEvent"
    """The event as a JSON object with all its fields: an entry is stored without those that have their defaults."""

    @classmethod
    def of(cls, seq: int, entry: journal.Entry, event: JournalEvent) -> "Shown":
        """Return the data of an event of the entry at that sequence."""
        fields: Any = whole(event)
        return cls(seq, entry.n, entry.run, entry.parent, entry.agent, entry.at, fields)


class ShownEntry(msgspec.Struct, frozen=True):
    """One entry of a run's journal."""

    seq: int
    n: int
    run: str
    parent: str | None
    agent: str
    at: float
    events: "list[journal.AnyEvent]"
    """As JSON objects with all their fields."""

    @classmethod
    def of(cls, seq: int, entry: journal.Entry) -> "ShownEntry":
        """Return the entry at that sequence as it is shown."""
        events: Any = [whole(event) for event in entry.events]
        return cls(seq, entry.n, entry.run, entry.parent, entry.agent, entry.at, events)


class EventStream(StreamingResponse):
    """Closes its source however the connection ends."""

    def __init__(self, source: AsyncGenerator[bytes]) -> None:
        super().__init__(
            source,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()


@dataclass(frozen=True)
class EventStreams:
    """Opens the event streams of runs."""

    lookup: RunLookup
    feeds: LiveFeeds
    watch_deltas: WatchDeltas
    ping_seconds: float = PING_SECONDS

    async def frames(self, run: str, after: int) -> AsyncGenerator[bytes]:
        """Frames of the run's subtree behind sequence `after`, to the run's end or until it is erased."""
        yield RETRY
        follower = Follower(self.lookup, self.feeds, run, after, idle_seconds=self.ping_seconds)
        end_deltas = await self.watch_deltas(tree_of(run), follower.on_delta)
        try:
            with self.feeds.follow(run, follower.feed):
                async for item in follower.items():
                    match item:
                        case Stored():
                            for one in entry_frames(item):
                                yield one
                        case Delta():
                            yield frame("delta", item)
                        case EndOfRun(state=state):
                            yield frame("end", {"run": run, "state": state})
                        case Notice():
                            yield NOTICES[item]
        finally:
            end_deltas()


def entry_frames(stored: Stored) -> Iterator[bytes]:
    """One frame per event of an entry, the stream sequence as `id:` on the last."""
    seq, entry = stored.seq, stored.entry
    for event in entry.events:
        shown = Shown.of(seq, entry, event)
        mark = b"id: %d\n" % seq if event is entry.events[-1] else b""
        yield frame(str(event.__struct_config__.tag), shown, mark)


def frame(name: str, data: Any, mark: bytes = b"") -> bytes:
    """Return one event as it is sent; `mark` is its `id:` line."""
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), mark, encode(data))
