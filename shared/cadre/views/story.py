"""The story of one tree of runs: what its entries make of its runs and of the calls that wait for a person. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cadre.api.runs import PendingCall, RunSummary
from cadre.journal.entry import Entry
from cadre.protocol.messages import Task
from cadre.protocol.topology import parent_of
from cadre.views.held_calls import NO_CHANGES, DecidedCall, call_changes
from cadre.views.lines import line_of, text_of
from cadre.views.rows import Line, Row, Rows
from cadre.views.run_summary import apply_event, first_summary, starts_no_run, summary_of_task


class Update(NamedTuple):
    """What one entry has changed. `rows` and `lines` stay empty where the story is made without rows."""

    rows: Sequence[Row] = ()
    lines: Sequence[Line] = ()
    """What its events mean, in their order; those that are not worth a line are left out."""

    runs: Sequence[str] = ()
    """Ids of the runs whose summaries are others now, the entry's own first."""
    held: Sequence[PendingCall] = ()
    """Calls that wait for a person from now on."""
    gone: Sequence[PendingCall] = ()
    """Calls that do so no longer."""
    decided: Sequence[DecidedCall] = ()
    """Those of `gone` that were decided."""
    ended: Sequence[str] = ()
    """The run that has ended, if one has."""


NOTHING = Update()


class Story:
    """A tree of runs as far as its entries were taken in, in stream order."""

    def __init__(self, tree: str, *, rows: bool = False) -> None:
        """`rows`: the rows of the tree are made as well, and the lines."""
        self.tree = tree
        self.rows = Rows() if rows else None
        self.last = 0
        """Sequence of the newest entry that was taken in."""
        self.summaries: dict[str, RunSummary] = {}
        """All known runs by id, in the order in which they became known."""
        self.pending: dict[str, dict[str, PendingCall]] = {}
        """The calls that wait for a person, by run and call."""

    @property
    def ended(self) -> bool:
        """Return whether the root has ended."""
        root = self.summaries.get(self.tree)
        return root is not None and root.finished

    def by_parent(self) -> dict[str | None, list[RunSummary]]:
        """Return the runs by the run that delegated to them, in the order in which they began."""
        found: dict[str | None, list[RunSummary]] = {}
        for one in self.summaries.values():
            found.setdefault(one.parent, []).append(one)
        return found

    def add_task(self, task: Task) -> Update:
        """Take in the task of a run: it is queued until it begins. A task changes nothing of a run that has begun."""
        if task.run in self.summaries:
            return NOTHING
        self.summaries[task.run] = summary_of_task(task)
        return Update(runs=[task.run])

    def take(self, seq: int, entry: Entry) -> Update:
        """Take in the entry at the stream sequence `seq`; one that was taken in before changes nothing."""
        run = entry.run
        summary = self.summaries.get(run)
        if seq <= self.last or (summary is None and starts_no_run(entry)):
            return NOTHING
        self.last = seq
        if summary is None:
            summary = self.summaries[run] = first_summary(entry)
        was_over = summary.finished
        for event in entry.events:
            apply_event(summary, event, entry.at)
        changes = call_changes(entry, self.pending.get(run, {}))
        runs = [run] if changes is NO_CHANGES else self._update_pending(run, changes.held, changes.gone)
        self._update_waiting(summary)
        ended = [run] if summary.finished and not was_over else []
        rows, lines = self._take_rows(seq, entry) if self.rows is not None else ((), ())
        return Update(rows, lines, runs, changes.held, changes.gone, changes.decided, ended)

    def _take_rows(self, seq: int, entry: Entry) -> tuple[Sequence[Row], Sequence[Line]]:
        assert self.rows is not None
        lines = []
        node = self.rows.begin(seq, entry)
        for event in entry.events:
            self.rows.apply(node, event)
            if text := line_of(self.rows, node, event):
                lines.append(Line(seq, entry.at, entry.run, str(event.__struct_config__.tag), text))
        changed = self.rows.end()
        for row in changed:
            row.text = text_of(row)
        return changed, lines

    def _update_pending(
        self, run: str, held: Sequence[PendingCall], gone: Sequence[PendingCall]
    ) -> list[str]:
        """Return the ids of the run and of the known runs above it, whose approvals are others now."""
        waiting = self.pending.setdefault(run, {})
        for call in held:
            waiting[call.call] = call
        for call in gone:
            del waiting[call.call]
        if not waiting:
            del self.pending[run]
        changed: list[str] = []
        above: str | None = run
        while above is not None:
            if (summary := self.summaries.get(above)) is not None:
                summary.approvals += len(held) - len(gone)
                changed.append(above)
            above = parent_of(above)
        return changed

    def _update_waiting(self, summary: RunSummary) -> None:
        if not summary.finished and summary.id in self.pending:
            summary.state, summary.waiting_for = "waiting", "approval"
        elif summary.waiting_for == "approval":
            summary.state, summary.waiting_for = "running", None
