"""Decisions for a tree of runs as a whole: whether its spans are sent, and when, if not as each ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from cadre.adapters.nats.reading.history import History
from cadre.errors import BusUnavailable
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.ports import Stored
from cadre.protocol.messages import Task
from cadre.recent import Recent
from cadre.settings import TracingSettings
from cadre.telemetry.tracing.ids import samples
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord, TreePart, TreeParts, may_end_part

MAX_TREES = 4096

_AT_ONCE = 8
"""Parts of trees that are read and sent at the same time."""

_SPANS = 256
"""Spans of a tree that are handed over together."""


class Sampling:
    """Knows which trees are sampled."""

    def __init__(self, history: History, settings: TracingSettings) -> None:
        self._history = history
        self._settings = settings
        self._known = Recent[str, bool](MAX_TREES)

    async def takes(self, entry: Entry) -> bool:
        """Return whether the spans of an entry's tree are sent. Raise BusUnavailable."""
        if self._settings.sampler == "always_on":
            return True
        tree = entry.tree
        if (known := self._known.get(tree)) is None:
            task = await self._task(entry)
            known = samples(self._settings, tree, task.trace if task is not None else None)
        self._known[tree] = known
        return known

    async def _task(self, entry: Entry) -> Task | None:
        if entry.run == entry.tree and entry.n == 1:
            first: Entry | None = entry
        else:
            held = await self._history.first(entry.tree, entry.tree)
            first = held.entry if held is not None else None
        accepted = (event for event in first.events if isinstance(event, RunAccepted)) if first else ()
        return next((event.task for event in accepted), None)


class _FollowedTree:
    """The parts of a tree, as far as it was read."""

    def __init__(self, tree: str) -> None:
        self.parts = TreeParts(tree)
        self.lock = asyncio.Lock()


class WholeTrees:
    """Sends a tree once it has ended, root first, or the part of it that has become long or old enough.

    Which entry ends a part follows from the journals alone. So the tracer acks every other entry at once, and one that
    dies sends nothing twice but the part that it was sending.
    """

    def __init__(self, history: History, send: Callable[[list[SpanRecord]], Awaitable[None]], *, content: bool) -> None:
        """`send` returns once the receiver has the spans."""
        self._history = history
        self._send = send
        self._content = content
        self._trees = Recent[str, _FollowedTree](MAX_TREES)
        self._began = Recent[str, float](MAX_TREES)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def take(self, stored: Stored, *, patient: bool) -> None:
        """Send what is complete with an entry; return when the receiver has it.

        Raises BusUnavailable, with `patient` also while entries before this one cannot be read yet.
        """
        if not may_end_part(stored.entry, await self._beginning(stored.entry)):
            return
        part = await self._part(stored, patient=patient)
        if part is None:
            return
        async with self._turns:
            async for spans in self._in_order(stored, part):
                await self._send([part.mark(span) for span in spans])

    def forget(self, tree: str) -> None:
        """Forget a tree that was erased."""
        self._trees.pop(tree, None)

    async def _beginning(self, entry: Entry) -> float:
        """Return the time of the first entry of the entry's run."""
        began = entry.at if entry.n == 1 else self._began.get(entry.run)
        if began is None:
            first = await self._history.first(entry.tree, entry.run)
            began = first.entry.at if first is not None else entry.at
        self._began[entry.run] = began
        return began

    async def _part(self, stored: Stored, *, patient: bool) -> TreePart | None:
        tree = stored.entry.tree
        followed = self._trees.get(tree) or _FollowedTree(tree)
        self._trees[tree] = followed
        parts = followed.parts
        async with followed.lock:
            async for one in self._entries(stored, parts.seq):
                if patient and (missing := parts.missing_before(one.entry)) is not None:
                    raise BusUnavailable(f"reading run {one.entry.run}", f"entry {missing} is not there yet")
                parts.take(one.seq, one.entry)
            if parts.seq < stored.seq:
                raise BusUnavailable(f"reading tree {tree}", f"entry {stored.seq} is not there yet")
        return parts.ended_by(stored.seq)

    async def _entries(self, end: Stored, after: int = 0) -> AsyncIterator[Stored]:
        """Yield the entries of a tree behind sequence `after`, up to this one."""
        if after >= end.seq:
            return
        async for page in self._history.pages(end.entry.tree, after, at_least=end.seq):
            for one in page:
                if one.seq > end.seq:
                    return
                yield one

    async def _in_order(self, end: Stored, part: TreePart) -> AsyncIterator[list[SpanRecord]]:
        """Yield the spans of a part: the root, if it has it, before all others. The journals are read twice, so that no
        tree is ever held as a whole."""
        tree = end.entry.tree
        root = [span async for spans in self._ended(end, part.after, run=tree) for span in spans if span.parent is None]
        if root:
            yield root
        async for spans in self._ended(end, part.after):
            if others := [span for span in spans if span.parent is not None]:
                yield others

    async def _ended(self, end: Stored, after: int, run: str | None = None) -> AsyncIterator[list[SpanRecord]]:
        """Yield the spans that end behind sequence `after`, some at a time; with `run` those of that run only."""
        runs: dict[str, Projection] = {}
        spans: list[SpanRecord] = []
        async for seq, entry in self._entries(end):
            if run not in (None, entry.run):
                continue
            known = runs.get(entry.run)
            if known is None:
                known = runs[entry.run] = Projection(entry.tree, entry.run, content=self._content)
            ended = known.apply(entry)
            if seq > after:
                spans += ended
            if len(spans) >= _SPANS:
                yield spans
                spans = []
        yield spans
