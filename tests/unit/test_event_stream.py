"""A stream of events that its gateway ends: whoever resumes it behind the last id misses nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from cadre.journal.events import Entry, RunAccepted, StepFinished
from cadre.ports import Stored
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec
from cadre_gateway.index.run_list import Index
from cadre_gateway.runs.event_stream import _Teller, stream

SPEC = AgentSpec(name="a", description="Works.")
TASK = Task(id="t:task", tree="t", run="t", at=0.0, agent="a", task="Go on.")


def stored(seq: int, run: str = "t") -> Stored:
    event = RunAccepted(task=TASK, spec=SPEC) if seq == 1 else StepFinished(step=seq)
    entry = Entry(
        tree="t", run=run, agent="a", parent=None, n=seq, cause=str(seq), at=0.0, events=[event], prev=[]
    )
    return Stored(seq, entry, 0)


class History:
    """What a stream holds of the run so far, in one page."""

    def __init__(self, *seqs: int) -> None:
        self._page = [stored(seq) for seq in seqs]

    async def pages(self, tree: str, after: int, *, at_least: int) -> AsyncIterator[list[Stored]]:
        yield [one for one in self._page if one.seq > after]


async def test_a_gateway_that_stops_halfway_leaves_no_gap() -> None:
    index = Index()
    index.apply(1, stored(1).entry)
    desk = SimpleNamespace(index=index, history=History(1, 2, 3), draining=asyncio.Event())
    teller = _Teller(desk, "t", 0)  # type: ignore[arg-type]
    told: list[int] = []
    async for frame in teller.tell():
        if found := re.search(rb"^id: (\d+)$", frame, re.M):
            told.append(int(found[1]))
        if told == [1] and not teller.feed.closed:
            teller.feed.put(stored(4))  # it happens while the history is told
            teller.feed.close()
    assert told == [1]


class Tail:
    """Hands to whoever listens what happens beside the run, one entry after the other."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Stored], None]] = []

    @contextmanager
    def listen(self, _tree: str, listener: Callable[[Stored], None]) -> Iterator[None]:
        self._listeners.append(listener)
        yield

    async def keep_busy(self, run: str) -> None:
        seq = 10
        while True:
            seq += 1
            for listener in self._listeners:
                listener(stored(seq, run))
            await asyncio.sleep(0.01)


async def test_a_quiet_run_beside_a_busy_one_is_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_deltas(*_: object) -> Callable[[], None]:
        return lambda: None

    monkeypatch.setattr("cadre_gateway.runs.event_stream.watch_deltas", no_deltas)
    monkeypatch.setattr("cadre_gateway.runs.event_stream.PING_SECONDS", 0.3)
    index = Index()
    for seq, run in enumerate(("t", "t_1_0", "t_1_1"), start=1):
        index.apply(seq, stored(1, run)._replace(seq=seq).entry)
    tail = Tail()
    desk = SimpleNamespace(
        index=index,
        history=History(1, 2, 3),
        tail=tail,
        platform=SimpleNamespace(nc=None, topology=None),
        draining=asyncio.Event(),
        open=lambda *_: nullcontext(),
    )
    beside = asyncio.create_task(tail.keep_busy("t_1_1"))
    frames = stream(desk, "t_1_0", 0)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(20):
            assert b": ping\n\n" in [await anext(frames), await anext(frames)]
    finally:
        beside.cancel()
        await frames.aclose()
