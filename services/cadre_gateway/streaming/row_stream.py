"""The rows of a tree as Server-Sent Events: what each entry has changed, for clients that derive nothing themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import takewhile
from weakref import WeakValueDictionary

from cadre.api.runs import State
from cadre.ports import Stored
from cadre.protocol.deltas import Delta
from cadre.protocol.topology import is_within, tree_of
from cadre.views.rows import Line, RowsChanged
from cadre.views.story import Story
from cadre_gateway.streaming.event_stream import NOTICES, RETRY, EventStreams, frame
from cadre_gateway.streaming.follow import EndOfRun, Follower, Notice

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
                RowsChanged(
                    seq, [row for row in rows if row.seq <= seq], [one for one in lines if one.seq <= seq]
                )
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
        """As long as somebody follows them."""

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
