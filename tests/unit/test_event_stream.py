"""A stream of events that its gateway ends: whoever resumes it behind the last id misses nothing."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import RunAccepted, StepFinished
from cadre.ports import Stored
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.streaming.event_stream import EventStreams
from cadre_gateway.streaming.live_feeds import LiveFeeds
from unit.inline_index import index_of

SPEC = AgentSpec(name="a", description="Works.")
TASK = Task(id="t:task", tree="t", run="t", at=0.0, agent="a", task="Go on.")


def stored(seq: int, run: str = "t") -> Stored:
    event = RunAccepted(task=TASK, spec=SPEC) if seq == 1 else StepFinished(step=seq)
    entry = Entry(
        arrived=ArrivalRecord("Task"),
        tree="t",
        run=run,
        agent="a",
        parent=None,
        n=seq,
        cause=str(seq),
        at=0.0,
        events=[event],
        prev=[],
    )
    return Stored(seq, entry, 0)


class History:
    """What a stream holds of the run so far, in one page."""

    def __init__(self, *seqs: int) -> None:
        self._page = [stored(seq) for seq in seqs]

    async def lean_pages(
        self, tree: str, after: int, *, at_least: int, entries: int = 0, all_of: str | None = None
    ) -> AsyncIterator[list[Stored]]:
        yield [one for one in self._page if one.seq > after]


class Tail:
    """Hands to whoever listens what happens beside the run, one entry after the other."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Stored], None]] = []

    @contextmanager
    def listen(self, _tree: str, listener: Callable[[Stored], None]) -> Iterator[None]:
        self._listeners.append(listener)
        yield

    def tell(self, one: Stored) -> None:
        for listener in self._listeners:
            listener(one)

    async def keep_busy(self, run: str) -> None:
        seq = 10
        while True:
            seq += 1
            self.tell(stored(seq, run))
            await asyncio.sleep(0.01)


def streams(index: RunIndex, tail: Tail, *seqs: int) -> EventStreams:
    """Event streams over what the journals hold of the run, without deltas."""

    async def no_deltas(*_: object) -> Callable[[], None]:
        return lambda: None

    lookup = RunLookup(index, History(*seqs))  # type: ignore[arg-type]
    return EventStreams(lookup, LiveFeeds(tail), no_deltas, ping_seconds=0.3)  # type: ignore[arg-type]


async def test_a_gateway_that_stops_halfway_leaves_no_gap() -> None:
    index = await index_of([stored(1).entry])
    tail = Tail()
    source = streams(index, tail, 1, 2, 3)
    ids: list[int] = []
    frames = source.frames("t", 0)
    async for frame in frames:
        if found := re.search(rb"^id: (\d+)$", frame, re.M):
            ids.append(int(found[1]))
        if ids == [1] and not source.feeds.draining:
            tail.tell(stored(4))  # it happens while the history is read
            source.feeds.drain()
    assert ids == [1]
    assert b"come back with Last-Event-ID" in frame


async def test_a_quiet_run_beside_a_busy_one_is_pinged() -> None:
    index = await index_of(stored(1, run).entry for run in ("t", "t_1_0", "t_1_1"))
    tail = Tail()
    beside = asyncio.create_task(tail.keep_busy("t_1_1"))
    frames = streams(index, tail, 1, 2, 3).frames("t_1_0", 0)
    try:
        async with asyncio.timeout(20):
            assert b": ping\n\n" in [await anext(frames), await anext(frames)]
    finally:
        beside.cancel()
        await frames.aclose()
