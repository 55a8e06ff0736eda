"""Send a run's events, or the rows of its tree that each entry changes, as Server-Sent Events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cadre.api.runs import State
from cadre.delivery.codec import encode, on_one_line
from cadre.journal import entry as journal
from cadre.journal.parts import JournalEvent
from cadre.journal.unions import whole
from cadre.ports import Stored
from cadre.protocol.deltas import Delta
from cadre.protocol.topology import is_within, tree_of
from cadre.views.rows import Line, RowsChanged
from cadre.views.story import Story
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.streaming.follow import EndOfRun, Follower, LiveFeeds, Notice

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
    event: journal.AnyEvent
    """The event as a JSON object with all its fields: an entry is stored without those that have their defaults."""

    @classmethod
    def of(cls, seq: int, entry: journal.Entry, event: JournalEvent) -> Shown:
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
    events: list[journal.AnyEvent]
    """As JSON objects with all their fields."""

    @classmethod
    def of(cls, seq: int, entry: journal.Entry) -> ShownEntry:
        """Return the entry at that sequence as it is shown."""
        events: Any = [whole(event) for event in entry.events]
        return cls(seq, entry.n, entry.run, entry.parent, entry.agent, entry.at, events)


class EventStream(StreamingResponse):
    """Closes its source however the connection ends."""

    def __init__(self, source: AsyncGenerator[bytes]) -> None:
        super().__init__(
            (on_one_line(frame) async for frame in source),
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


_ROWS_IN_A_FRAME = 200


class FollowedTree:
    """The story of a tree that is followed, shared by all who follow it."""

    def __init__(self, tree: str) -> None:
        self.story = Story(tree, rows=True)
        self._lines: list[Line] = []

    def take(self, stored: Stored) -> None:
        """Take in an entry, unless another follower has done so."""
        self._lines += self.story.take(*stored).lines

    def behind(self, run: str, after: int) -> list[RowsChanged]:
        """Return what has changed of the run and of all below it behind the sequence `after`, in portions."""
        assert self.story.rows is not None
        rows = [row for row in self.story.rows.since(after) if is_within(row.run, run)]
        lines = [*takewhile(lambda line: line.seq > after, reversed(self._lines))]
        lines = [line for line in reversed(lines) if is_within(line.run, run)]
        found = []
        while len(rows) > _ROWS_IN_A_FRAME:
            seq = rows[_ROWS_IN_A_FRAME - 1].seq  # all that an entry has changed comes at once
            found.append(
                RowsChanged(seq, [row for row in rows if row.seq <= seq], [one for one in lines if one.seq <= seq])
            )
            rows, lines = [row for row in rows if row.seq > seq], [one for one in lines if one.seq > seq]
        if rows or lines:
            found.append(RowsChanged(self.story.last, rows, lines))
        return found

    def end_of(self, run: str) -> State | None:
        """Return how a run has ended; None as long as it goes on."""
        summary = self.story.summaries.get(run)
        return summary.state if summary is not None and summary.finished else None


class RowStreams:
    """Opens streams of rows."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams
        self._trees: WeakValueDictionary[str, FollowedTree] = WeakValueDictionary()
        """For as long as they are followed."""

    async def frames(self, run: str, after: int) -> AsyncGenerator[bytes]:
        """Yield frames of the run's subtree behind the sequence `after`, to the run's end or until it is erased."""
        yield RETRY
        streams, name = self._streams, tree_of(run)
        tree = self._trees.setdefault(name, FollowedTree(name))
        # All entries of the tree in their order: a story takes none that came before.
        follower = Follower(
            streams.lookup, streams.feeds, name, tree.story.last, idle_seconds=streams.ping_seconds, until=run
        )
        end_deltas = await streams.watch_deltas(name, follower.on_delta)
        try:
            with streams.feeds.follow(name, follower.feed):
                async with aclosing(_items(follower, tree)) as items:
                    async for item in items:
                        match item:
                            case None | EndOfRun():
                                # Before it is sent: another follower may take in more meanwhile.
                                frames, after = _news(tree, run, after)
                                for one in frames:
                                    yield one
                                state = item.state if item is not None else None
                                if state is not None or tree.end_of(run) is not None:
                                    yield frame("end", {"run": run, "state": state or tree.end_of(run)})
                                    return
                            case Delta() if is_within(item.run, run):
                                yield frame("delta", item)
                            case Notice():
                                yield NOTICES[item]
                            case _:
                                pass
                if not streams.feeds.draining:
                    self._trees.pop(name, None)  # it was erased: what begins under its name is another run
        finally:
            end_deltas()


async def _items(follower: Follower, tree: FollowedTree) -> AsyncGenerator[Delta | Notice | EndOfRun | None]:
    """Yield what the follower has besides entries, and None whenever the story may have gone on."""
    yield None
    async for item in follower.items():
        match item:
            case Stored():
                tree.take(item)
                yield None
            case _:
                yield item


def _news(tree: FollowedTree, run: str, after: int) -> tuple[list[bytes], int]:
    """Return the frames of what has changed behind `after`, and the sequence up to which they go."""
    frames = [frame("rows", one, b"id: %d\n" % one.seq) for one in tree.behind(run, after)]
    return frames, max(after, tree.story.last)
