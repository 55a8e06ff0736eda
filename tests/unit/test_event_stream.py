"""A stream of events that its gateway ends: whoever resumes it behind the last id misses nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from types import SimpleNamespace

from cadre.loop.events import Entry, RunAccepted, StepFinished
from cadre.messages import Task
from cadre.ports import Stored
from cadre.specs import AgentSpec
from cadre_gateway.events import _Teller
from cadre_gateway.projection import Index

SPEC = AgentSpec(name="a", description="Works.")
TASK = Task(id="t:task", tree="t", run="t", at=0.0, agent="a", task="Go on.")


def stored(seq: int) -> Stored:
    event = RunAccepted(task=TASK, spec=SPEC) if seq == 1 else StepFinished(step=seq)
    entry = Entry(
        tree="t", run="t", agent="a", parent=None, n=seq, cause=str(seq), at=0.0, events=[event], prev=[]
    )
    return Stored(seq, entry, 0)


class History:
    """What a stream holds of the run so far, in one page."""

    def __init__(self, *seqs: int) -> None:
        self._page = [stored(seq) for seq in seqs]

    async def pages(self, tree: str, after: int) -> AsyncIterator[list[Stored]]:
        yield [one for one in self._page if one.seq > after]


async def test_a_gateway_that_stops_halfway_leaves_no_gap() -> None:
    index = Index()
    index.apply(1, stored(1).entry)
    desk = SimpleNamespace(index=index, history=History(1, 2, 3))
    teller = _Teller(desk, "t", 0)  # type: ignore[arg-type]
    told: list[int] = []
    async for frame in teller.tell():
        if found := re.search(rb"^id: (\d+)$", frame, re.M):
            told.append(int(found[1]))
        if told == [1] and not teller.feed.closed:
            teller.feed.put(stored(4))  # it happens while the history is told
            teller.feed.close()
    assert told == [1]
