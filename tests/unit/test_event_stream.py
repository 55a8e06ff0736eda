"""A stream of events that its gateway ends: anyone who resumes it behind the last id misses nothing."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest

from cadre.errors import BusUnavailable
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import AnyEvent, RunAccepted, RunFinished, StepFinished
from cadre.ports import Stored
from cadre.protocol.messages import Task
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.streaming import follow
from cadre_gateway.streaming.event_stream import EventStreams
from cadre_gateway.streaming.follow import LiveFeeds
from unit.inline_index import index_of

SPEC = AgentSpec(name="a", description="Works.")
END = 99
"""The sequence of the run's last entry."""
TASK = Task(id="t:task", tree="t", run="t", at=0.0, agent="a", task="Go on.")


def stored(seq: int, run: str = "t") -> Stored:
    event: AnyEvent = (
        RunAccepted(task=TASK, spec=SPEC, decided_by="tool_calling") if seq == 1 else StepFinished(step=seq)
    )
    if seq == END:
        event = RunFinished(state="success", output=1, steps=1, usage=Usage())
    entry = Entry(
        arrived=ArrivalRecord("Task"),
        run=run,
        agent="a",
        n=seq,
        cause=str(seq),
        at=0.0,
        events=[event],
    )
    return Stored(seq, entry)


class History:
    """The entries of the run that a stream holds so far, in one page. The replica read may lag behind its leader."""

    def __init__(self, *seqs: int) -> None:
        self._page = [stored(seq) for seq in seqs]
        self.lag = 0
        """So many of the last entries the replica lacks, one less with each reading."""

    async def lean_pages(
        self, tree: str, after: int, *, at_least: int, entries: int = 0, all_of: str | None = None
    ) -> AsyncIterator[list[Stored]]:
        page = self._page[: len(self._page) - self.lag]
        if page[-1].seq < at_least:
            self.lag -= 1
            raise BusUnavailable("reading", "the replica lags")
        yield [one for one in page if one.seq > after]

    async def newest(self, tree: str) -> int:
        return max(one.seq for one in self._page)

    async def task(self, tree: str, run: str) -> Task:
        return TASK

    async def read(self, tree: str, run: str) -> list[Stored]:
        return [one for one in self._page if one.entry.run == run]

    async def lifecycle(self, tree: str) -> None:
        return None


class Tail:
    """Hands to anyone who listens what happens next to the run, one entry after the other."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Stored], None]] = []
        self.told = 0

    @contextmanager
    def listen(self, _tree: str, listener: Callable[[Stored], None]) -> Iterator[None]:
        self._listeners.append(listener)
        yield

    def last_live(self, _tree: str) -> int:
        return self.told

    def tell(self, one: Stored) -> None:
        for listener in self._listeners:
            listener(one)

    async def keep_busy(self, run: str) -> None:
        seq = 10
        while True:
            seq += 1
            self.tell(stored(seq, run))
            await asyncio.sleep(0.01)


def streams(index: RunIndex, tail: Tail, history: History) -> EventStreams:
    """Event streams over what the journals hold of the run, without deltas."""

    async def no_deltas(*_: object) -> Callable[[], None]:
        return lambda: None

    lookup = RunLookup(index, history, history, history, history)  # type: ignore[arg-type]
    return EventStreams(lookup, LiveFeeds(tail), no_deltas, ping_seconds=0.3)  # type: ignore[arg-type]


async def test_a_gateway_that_stops_halfway_leaves_no_gap() -> None:
    index = await index_of([stored(1).entry])
    tail = Tail()
    source = streams(index, tail, History(1, 2, 3))
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


async def test_the_end_is_not_lost_where_a_replica_lags_and_the_index_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end was live before this follower was there: neither its feed nor the index has it."""
    monkeypatch.setattr(follow, "_BUS_PAUSE_SECONDS", 0.0)
    tail, history = Tail(), History(1, 2, END)
    history.lag, tail.told = 2, END
    async with asyncio.timeout(20):
        frames = b"".join([frame async for frame in streams(await index_of([]), tail, history).frames("t", 0)])
    assert re.findall(rb"^id: (\d+)$", frames, re.M) == [b"1", b"2", b"99"]
    assert b"event: end" in frames
    assert history.lag == 0


async def test_a_new_leader_that_lags_hides_nothing_that_was_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the newest entry; those who listened have heard of it."""
    monkeypatch.setattr(follow, "_BUS_PAUSE_SECONDS", 0.0)
    tail, history = Tail(), History(1, 2, END)
    history.lag, tail.told = 1, END

    async def newest(tree: str) -> int:
        return 2

    monkeypatch.setattr(history, "newest", newest)
    async with asyncio.timeout(20):
        frames = b"".join([frame async for frame in streams(await index_of([]), tail, history).frames("t", 0)])
    assert re.findall(rb"^id: (\d+)$", frames, re.M) == [b"1", b"2", b"99"]


async def test_a_quiet_run_beside_a_busy_one_is_pinged() -> None:
    index = await index_of(stored(1, run).entry for run in ("t", "t_1_0", "t_1_1"))
    tail = Tail()
    beside = asyncio.create_task(tail.keep_busy("t_1_1"))
    frames = streams(index, tail, History(1, 2, 3)).frames("t_1_0", 0)
    try:
        async with asyncio.timeout(20):
            assert b": ping\n\n" in [await anext(frames), await anext(frames)]
    finally:
        beside.cancel()
        await frames.aclose()
