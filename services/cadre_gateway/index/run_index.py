"""The list of runs as a projection of the journals: pure, the same entries always give the same list."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

import msgspec

from cadre.api.approvals import PendingCall
from cadre.api.runs import RunSummary
from cadre.journal.entry import Entry
from cadre.protocol.topology import parent_of
from cadre.recent import Recent
from cadre_gateway.index.decided_approvals import MAX_DECIDED, DecidedCall, decided_in
from cadre_gateway.index.pending_approvals import PendingCalls, pending_changes, pending_in
from cadre_gateway.index.run_summary import apply_event, first_summary, starts_no_run
from cadre_gateway.requests.paging import page_of

MAX_RUNS = 100_000
"""Runs (children included) that one gateway keeps in its list; the oldest trees that have ended go first."""

_MAX_FORMER_PLACES = 10_000
"""Trees that have left the list, and that a reader of its pages may still name."""


class TreeSummary(msgspec.Struct, kw_only=True):
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

    decided: list[DecidedCall] = []
    """The calls that were decided last, the oldest first."""

    @property
    def ended(self) -> bool:
        """Whether its root has ended."""
        root = self.runs.get(self.id)
        return root is not None and root.finished

    def pending_calls(self) -> Iterator[PendingCall]:
        """The calls of all its runs that wait for a person."""
        return (call for calls in self.pending.values() for call in calls.values())


class RunIndex:
    """Summaries of runs by id and by age, built from entries in stream order."""

    def __init__(self, trees: list[TreeSummary] | None = None, capacity: int = MAX_RUNS) -> None:
        self._capacity = capacity
        self._trees = {tree.id: tree for tree in trees or []}
        self._order = sorted((tree.at, tree.id) for tree in self._trees.values())
        self._size = sum(len(tree.runs) for tree in self._trees.values())
        self._pending = PendingCalls(call for tree in self._trees.values() for call in tree.pending_calls())
        self._decided = sorted(
            (*call.place, tree.id) for tree in self._trees.values() for call in tree.decided
        )
        self._ended = sorted((tree.at, tree.id) for tree in self._trees.values() if tree.ended)
        self._former_places = Recent[str, float](_MAX_FORMER_PLACES)
        """When the trees began that have left the list last."""
        self._evict()

    def __len__(self) -> int:
        return self._size

    def trees(self) -> list[TreeSummary]:
        """All trees, the oldest first."""
        return [self._trees[name] for _, name in self._order]

    def tree(self, tree: str) -> TreeSummary | None:
        """None when the tree is not in the list."""
        return self._trees.get(tree)

    def get(self, tree: str, run: str) -> RunSummary | None:
        """None when the run is not in the list."""
        found = self._trees.get(tree)
        return found.runs.get(run) if found else None

    def open_runs(self) -> Iterator[RunSummary]:
        """The runs that have not ended, of all trees whose root has not."""
        return (
            run
            for tree in self._trees.values()
            if not tree.ended
            for run in tree.runs.values()
            if not run.finished
        )

    def runs_by_parent(self, tree: str) -> dict[str | None, list[RunSummary]]:
        """The tree's runs by the run that delegated to them, in the order in which they began."""
        found: dict[str | None, list[RunSummary]] = {}
        known = self._trees.get(tree)
        for one in known.runs.values() if known else ():
            found.setdefault(one.parent, []).append(one)
        return found

    def apply(self, seq: int, entry: Entry) -> None:
        """Takes in the entry at `seq`; one that was taken in before changes nothing."""
        tree = self._trees.get(entry.tree)
        if (tree is None or entry.run not in tree.runs) and starts_no_run(entry):
            return
        if tree is None:
            opens = entry.run == entry.tree and entry.n == 1
            tree = TreeSummary(id=entry.tree, at=entry.at, first=seq if opens else 0, last=0, runs={})
            self._trees[entry.tree] = tree
            insort(self._order, (tree.at, tree.id))
        if seq <= tree.last:
            return
        tree.last = seq
        summary = tree.runs.get(entry.run)
        if summary is None:
            summary = tree.runs[entry.run] = first_summary(entry)
            self._size += 1
            if entry.snapshot is not None:
                self._update_pending(tree, pending_in(entry.snapshot, entry), [])
        for event in entry.events:
            apply_event(summary, event, entry.at)
        pending = tree.pending.get(entry.run, {})
        self._note_decided(tree, decided_in(entry, pending))
        self._update_pending(tree, *pending_changes(entry, pending))
        _update_waiting(summary, tree)
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
        self._former_places[tree] = found.at
        for call in found.pending_calls():
            self._pending.drop(call)
        for decided in found.decided:
            self._forget_decided(found, decided)

    def pending(self, before: tuple[float, str] | None = None) -> Iterator[PendingCall]:
        """Calls that wait for a person, over all runs, the newest first; see `PendingCalls.newest_first`."""
        return self._pending.newest_first(before)

    def decided(self, before: tuple[float, str] | None = None) -> Iterator[DecidedCall]:
        """Calls that were decided, over all runs, the newest first; behind the position `before` (time of the decision,
        call)."""
        end = len(self._decided) if before is None else bisect_left(self._decided, before)
        for at, call, tree in reversed(self._decided[:end]):
            yield next(one for one in reversed(self._trees[tree].decided) if one.place == (at, call))

    def _note_decided(self, tree: TreeSummary, calls: list[DecidedCall]) -> None:
        for call in calls:
            tree.decided.append(call)
            insort(self._decided, (*call.place, tree.id))
        while len(tree.decided) > MAX_DECIDED:
            self._forget_decided(tree, tree.decided.pop(0))

    def _forget_decided(self, tree: TreeSummary, call: DecidedCall) -> None:
        del self._decided[bisect_left(self._decided, (*call.place, tree.id))]

    def _update_pending(self, tree: TreeSummary, added: list[PendingCall], gone: list[PendingCall]) -> None:
        for call in added:
            tree.pending.setdefault(call.run, {})[call.call] = call
            self._pending.add(call)
            _count(tree, call, 1)
        for call in gone:
            del tree.pending[call.run][call.call]
            if not tree.pending[call.run]:
                del tree.pending[call.run]
            self._pending.drop(call)
            _count(tree, call, -1)

    def roots(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        session: str | None = None,
        limit: int = 50,
        before: str | None = None,
        only: Callable[[RunSummary], bool] = lambda _: True,
    ) -> tuple[list[RunSummary], str | None]:
        """Root runs, newest first, `only` those, and the `before` of the next page (None: this is the last one).

        Raises KeyError when `before` is not in the list, nor was lately.
        """
        matching = (
            summary
            for summary in self._newest_first(before)
            if (agent is None or summary.agent == agent)
            and (state is None or summary.state == state)
            and (session is None or summary.session == session)
            and only(summary)
        )
        page, last = page_of(matching, limit)
        return page, last.id if last is not None else None

    def _newest_first(self, before: str | None) -> Iterator[RunSummary]:
        end = len(self._order)
        if before is not None:
            there = self._trees.get(before)
            at = there.at if there is not None else self._former_places[before]
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


def _count(tree: TreeSummary, call: PendingCall, more: int) -> None:
    """Adds `more` to the approvals of the call's run and of all runs above it."""
    run: str | None = call.run
    while run is not None:
        summary = tree.runs.get(run)
        if summary is not None:
            summary.approvals += more
        run = parent_of(run)


def _update_waiting(summary: RunSummary, tree: TreeSummary) -> None:
    """Says what the run waits for; called after each of its entries."""
    if not summary.finished and summary.id in tree.pending:
        summary.state, summary.waiting_for = "waiting", "approval"
    elif summary.waiting_for == "approval":
        summary.state, summary.waiting_for = "running", None
