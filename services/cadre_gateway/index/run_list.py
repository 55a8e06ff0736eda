"""The list of runs as a projection of the journals: pure, the same entries always give the same list."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Literal

import msgspec

from cadre.journal.events import (
    AnyEvent,
    DelegateFinished,
    Entry,
    ModelAnswered,
    ModelCalled,
    ModelDeferred,
    RecordIgnored,
    RunAccepted,
    RunFinished,
    StepFinished,
)
from cadre.journal.run import Phase, Run
from cadre.protocol.messages import ErrorInfo, Task, Usage
from cadre.protocol.topology import parent_of
from cadre.recent import Recent
from cadre_gateway.index.pending_approvals import PendingCall, Queue, changes, of_run

State = Literal["running", "waiting", "success", "max_steps_error", "error", "cancelled"]
"""`waiting`: for a person, or for the time that the model endpoint asked for."""

WaitingFor = Literal["approval", "model"]

CAPACITY = 100_000
"""Runs (children included) that one gateway keeps in its list; the oldest trees that have ended go first."""

TASK_CHARS = 200

_PLACES = 10_000
"""Trees that have left the list, and that a reader of its pages may still name."""


class RunSummary(msgspec.Struct, kw_only=True):
    """One run as the list shows it. Times are Unix seconds."""

    id: str
    tree: str
    parent: str | None = None
    agent: str = ""
    task: str = ""
    state: State = "running"
    waiting_for: WaitingFor | None = None
    """What a waiting run itself waits for."""
    approvals: int = 0
    """Calls of the run and of all runs below it that wait for a person."""
    step: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    usage: Usage = Usage()
    session: str | None = None
    error: ErrorInfo | None = None

    @property
    def finished(self) -> bool:
        return self.ended_at is not None


class Tree(msgspec.Struct, kw_only=True):
    """All known runs of a delegation tree, and where it lies in its stream."""

    id: str
    at: float
    """When its first known entry was written: the place in the list."""
    first: int
    """No entry of the tree lies before this sequence."""
    last: int
    runs: dict[str, RunSummary] = {}
    pending: dict[str, dict[str, PendingCall]] = {}
    """The calls that wait for a person, by run and call."""

    @property
    def ended(self) -> bool:
        root = self.runs.get(self.id)
        return root is not None and root.finished

    def pending_calls(self) -> Iterator[PendingCall]:
        return (call for calls in self.pending.values() for call in calls.values())


class Index:
    """Run summaries by id and by age, built from entries in stream order."""

    def __init__(self, trees: list[Tree] | None = None, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._trees = {tree.id: tree for tree in trees or []}
        self._order = sorted((tree.at, tree.id) for tree in self._trees.values())
        self._size = sum(len(tree.runs) for tree in self._trees.values())
        self._queue = Queue(call for tree in self._trees.values() for call in tree.pending_calls())
        self._ended = sorted((tree.at, tree.id) for tree in self._trees.values() if tree.ended)
        self._gone = Recent[str, float](_PLACES)
        """Where the last ones stood that have left the list."""
        self._evict()

    def __len__(self) -> int:
        return self._size

    def trees(self) -> list[Tree]:
        """Oldest first."""
        return [self._trees[name] for _, name in self._order]

    def tree(self, tree: str) -> Tree | None:
        return self._trees.get(tree)

    def get(self, tree: str, run: str) -> RunSummary | None:
        found = self._trees.get(tree)
        return found.runs.get(run) if found else None

    def open_runs(self) -> Iterator[RunSummary]:
        """Those that have not ended, of all trees whose root has not."""
        return (
            run
            for tree in self._trees.values()
            if not tree.ended
            for run in tree.runs.values()
            if not run.finished
        )

    def children(self, summary: RunSummary) -> list[RunSummary]:
        """The runs that this one delegated to, in the order in which they began."""
        tree = self._trees.get(summary.tree)
        return [run for run in tree.runs.values() if run.parent == summary.id] if tree else []

    def apply(self, seq: int, entry: Entry) -> None:
        """Takes in the entry at `seq`; one that was taken in before changes nothing."""
        tree = self._trees.get(entry.tree)
        if (tree is None or entry.run not in tree.runs) and begins_nothing(entry):
            return
        if tree is None:
            opens = entry.run == entry.tree and entry.n == 1
            tree = Tree(id=entry.tree, at=entry.at, first=seq if opens else 0, last=0, runs={})
            self._trees[entry.tree] = tree
            insort(self._order, (tree.at, tree.id))
        if seq <= tree.last:
            return
        tree.last = seq
        summary = tree.runs.get(entry.run)
        if summary is None:
            summary = tree.runs[entry.run] = _begin(entry)
            self._size += 1
            if entry.snapshot is not None:
                self._hold(tree, of_run(entry.snapshot, entry), [])
        for event in entry.events:
            _advance(summary, event, entry.at)
        self._hold(tree, *changes(entry, tree.pending.get(entry.run, {})))
        _tell_why(summary, tree)
        if entry.run == entry.tree and summary.finished:
            heappush(self._ended, (tree.at, tree.id))
        self._evict()

    def drop(self, tree: str) -> None:
        """Takes a tree from the list, if it is there."""
        found = self._trees.pop(tree, None)
        if found is None:
            return
        self._size -= len(found.runs)
        del self._order[bisect_left(self._order, (found.at, found.id))]
        self._gone[tree] = found.at
        for call in found.pending_calls():
            self._queue.drop(call)

    def pending(self, before: tuple[float, str] | None = None) -> Iterator[PendingCall]:
        """Calls that wait for a person, over all runs, the newest first; see `Queue.newest_first`."""
        return self._queue.newest_first(before)

    def _hold(self, tree: Tree, added: list[PendingCall], gone: list[PendingCall]) -> None:
        for call in added:
            tree.pending.setdefault(call.run, {})[call.call] = call
            self._queue.add(call)
            _count(tree, call, 1)
        for call in gone:
            del tree.pending[call.run][call.call]
            if not tree.pending[call.run]:
                del tree.pending[call.run]
            self._queue.drop(call)
            _count(tree, call, -1)

    def roots(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        session: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> tuple[list[RunSummary], str | None]:
        """Root runs, newest first, and the `before` of the next page (None: this is the last one).

        Raises KeyError when `before` is not in the list, nor was lately.
        """
        found: list[RunSummary] = []
        for summary in self._newest_first(before):
            if (
                (agent is None or summary.agent == agent)
                and (state is None or summary.state == state)
                and (session is None or summary.session == session)
            ):
                if len(found) == limit:
                    return found, found[-1].id
                found.append(summary)
        return found, None

    def _newest_first(self, before: str | None) -> Iterator[RunSummary]:
        end = len(self._order)
        if before is not None:
            there = self._trees.get(before)
            at = there.at if there is not None else self._gone[before]
            end = bisect_left(self._order, (at, before))
        for _, name in reversed(self._order[:end]):
            root = self._trees[name].runs.get(name)
            if root is not None:
                yield root

    def _evict(self) -> None:
        # One tree always stays, be it larger than the list.
        while self._size > self._capacity and len(self._order) > 1:
            oldest = self._order[0][1]
            while self._ended:
                _, name = heappop(self._ended)
                if name in self._trees:
                    oldest = name
                    break
            self.drop(oldest)


def begins_nothing(entry: Entry) -> bool:
    """Whether a journal that begins so tells of no run: something came late, for a run that was never here."""
    return entry.snapshot is None and all(isinstance(event, RecordIgnored) for event in entry.events)


def of_task(task: Task) -> RunSummary:
    """The summary of a run that no agent has taken up yet."""
    return RunSummary(
        id=task.run,
        tree=task.tree,
        parent=task.reply_to.run if task.reply_to else None,
        agent=task.agent,
        task=short(task.task),
        started_at=task.at,
        session=task.session,
    )


def _begin(entry: Entry) -> RunSummary:
    if entry.snapshot is not None:
        return _of_snapshot(entry.snapshot, entry)
    return RunSummary(
        id=entry.run, tree=entry.tree, parent=entry.parent, agent=entry.agent, started_at=entry.at
    )


def _of_snapshot(run: Run, entry: Entry) -> RunSummary:
    """For a journal whose beginning has expired."""
    summary = RunSummary(
        id=run.id, tree=run.tree, parent=entry.parent, agent=run.agent, step=run.step, usage=run.usage
    )
    summary.started_at = run.started_at or entry.at
    summary.state = "waiting" if run.phase is Phase.WAITING else "running"
    if run.task is not None:
        summary.task, summary.session = short(run.task.task), run.task.session
    if run.result is not None:
        summary.state, summary.error, summary.ended_at = run.result.state, run.result.error, run.result.at
    return summary


def _advance(summary: RunSummary, event: AnyEvent, at: float) -> None:
    if summary.finished or isinstance(event, RecordIgnored):
        return
    summary.state = "running"
    match event:
        case RunAccepted(task=task):
            summary.task, summary.session, summary.started_at = short(task.task), task.session, at
        case ModelCalled(purpose="act", step=step):
            summary.step = step
        case ModelDeferred():
            summary.state = "waiting"
        case ModelAnswered(usage=usage):
            summary.usage = summary.usage + usage + Usage(model_calls=1)
        case DelegateFinished(usage=usage):
            summary.usage = summary.usage + usage
        case StepFinished():
            summary.usage = summary.usage + Usage(steps=1)
        case RunFinished():
            summary.state, summary.error, summary.ended_at = event.state, event.error, at
            summary.step, summary.usage = event.steps, event.usage
        case _:
            pass


def _count(tree: Tree, call: PendingCall, more: int) -> None:
    """In the call's run and all runs above it."""
    run: str | None = call.run
    while run is not None:
        summary = tree.runs.get(run)
        if summary is not None:
            summary.approvals += more
        run = parent_of(run)


def _tell_why(summary: RunSummary, tree: Tree) -> None:
    if not summary.finished and summary.id in tree.pending:
        summary.state, summary.waiting_for = "waiting", "approval"
    else:
        summary.waiting_for = "model" if summary.state == "waiting" else None


def short(text: str) -> str:
    return text if len(text) <= TASK_CHARS else text[: TASK_CHARS - 1] + "…"
