"""The story of one tree of runs: what its entries make of its runs and of the calls that wait for a person, and what
each event means, on a line of text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cadre.api.runs import PendingCall, RunSummary
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.parts import JournalEvent
from cadre.protocol.messages import Task
from cadre.protocol.topology import parent_of
from cadre.views.held_calls import NO_CHANGES, DecidedCall, call_changes, persons
from cadre.views.rows import Line, Node, Row, Rows, run_key
from cadre.views.run_summary import apply_event, first_summary, starts_no_run, summary_of_task
from cadre.views.words import brief, call_text, error_text, number, seconds, too_late, verdict


class Update(NamedTuple):
    """The changes that one entry has made. `rows` and `lines` stay empty where the story is made without rows."""

    rows: Sequence[Row] = ()
    lines: Sequence[Line] = ()
    """The meaning of its events, in their order; those that are not worth a line are left out."""

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

    def _update_pending(self, run: str, held: Sequence[PendingCall], gone: Sequence[PendingCall]) -> list[str]:
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
                summary.approvals += persons(held) - persons(gone)
                changed.append(above)
            above = parent_of(above)
        return changed

    def _update_waiting(self, summary: RunSummary) -> None:
        waiting = () if summary.finished else self.pending.get(summary.id, {}).values()
        if waiting:
            summary.state, summary.waiting_for = "waiting", "approval" if persons(waiting) else "caller"
        elif summary.waiting_for in ("approval", "caller"):
            summary.state, summary.waiting_for = "running", None


_MAX = 110


def line_of(rows: Rows, node: Node, event: JournalEvent) -> str | None:
    """Return the line of an event of the node's run, indented by its depth; None for one that is not worth a line.
    `rows` are those behind the event."""
    make = _LINES.get(type(event))
    text = make(rows, node, event) if make is not None else _own(event)
    if not text:
        return None
    depth = node.row.run.count("_") // 2
    return f"{'  ' * depth}{node.row.name}: {text}"


def text_of(row: Row) -> str:
    """Return what a row says at the moment, on a line."""
    if row.error:
        return row.error
    match row.kind:
        case "run":
            return row.result if row.ended_at else row.words or row.brief
        case "step":
            return row.words
        case "model":
            return row.remark if row.state == "failed" else row.brief
        case "call" if row.state == "held":
            return f"waits for approval: {row.remark}"
        case "call" if row.state in ("failed", "dropped"):
            return row.result
        case _:
            return row.brief


def _own(event: JournalEvent) -> str:
    return brief("; ".join(event.describe().lines), 2 * _MAX)


def _accepted(rows: Rows, node: Node, event: ev.RunAccepted) -> str:
    # With its task, unless the line of its manager has just shown it.
    has_manager = node.facts.parent is not None and run_key(node.facts.parent) in rows.rows
    return "begins" if has_manager else f"begins: {brief(event.task.task, _MAX)}"


def _toolset(rows: Rows, node: Node, event: ev.ToolsetChanged) -> str:
    return "; ".join(node.facts.missing)


def _model_called(rows: Rows, node: Node, event: ev.ModelCalled) -> str:
    step = f"step {event.step}: asks"
    if event.reason:
        return f"{step} {event.model or 'another model'} instead: {brief(event.reason, 2 * _MAX)}"
    if event.attempt > 1:
        return f"{step} the model, try {event.attempt}"
    return f"{step} the model" + ("" if event.purpose == "act" else f" ({event.purpose})")


def _deferred(rows: Rows, node: Node, event: ev.ModelDeferred) -> str:
    return f"waits for the model: {brief(event.reason, 2 * _MAX)}"


def _requested(rows: Rows, node: Node, event: ev.ApprovalRequested) -> str:
    if event.kind == "question":
        return f"asks a person: {brief(event.reason, 2 * _MAX)}: cadre approve|reject {event.call}"
    wanted = brief(event.text, 2 * _MAX) or call_text(event.name, event.arguments, _MAX)
    if event.kind == "function":
        return f"waits for its caller to answer {wanted}"
    return f"waits for approval: {wanted} ({brief(event.reason, _MAX)}): cadre approve {event.call}"


def _decided(rows: Rows, node: Node, event: ev.ApprovalDecided) -> str:
    text = f"{_name_of(rows, node, event.call)}: {brief(verdict(event), _MAX)}"
    if event.verdict == "corrected":
        text += f", now {call_text(event.name or 'with', event.arguments or {}, _MAX)}"
    return text


def _timed_out(rows: Rows, node: Node, event: ev.CallTimedOut) -> str:
    return f"{_name_of(rows, node, event.call)}: {too_late(event)}"


def _tool_called(rows: Rows, node: Node, event: ev.ToolCalled) -> str:
    return f"calls {event.tool} {brief(event.arguments, _MAX)}"


def _delegated(rows: Rows, node: Node, event: ev.DelegateStarted) -> str:
    return f"asks {event.member}: {brief(event.task, _MAX)}"


def _tool_answered(rows: Rows, node: Node, event: ev.ToolAnswered) -> str:
    return f"{event.tool} {_outcome(event.error, event.output)} ({seconds(event.seconds)})"


def _joined(rows: Rows, node: Node, event: ev.DelegateFinished) -> str:
    return f"{event.member} {_outcome(event.error, event.output)}"


def _refused(rows: Rows, node: Node, event: ev.CallRefused) -> str:
    return f"{event.name} {_outcome(event.error, None)}"


def _proposed(rows: Rows, node: Node, event: ev.AnswerProposed) -> str:
    return f"has an answer, checked by {brief(', '.join(dict.fromkeys(event.checks.values())), _MAX)}"


def _checked(rows: Rows, node: Node, event: ev.AnswerChecked) -> str:
    return f"answer turned down by {event.check}: {brief(event.problem, _MAX)}" if event.problem else ""


def _step_started(rows: Rows, node: Node, event: ev.StepStarted) -> str:
    again = f", try {event.attempt}" if event.attempt > 1 else ""
    return f"step {event.step}: {event.name or 'begins'}{again}"


def _step_finished(rows: Rows, node: Node, event: ev.StepFinished) -> str:
    return f"step {event.step} failed: {brief(error_text(event.error), _MAX)}" if event.error else ""


def _message(rows: Rows, node: Node, event: ev.MessageReceived) -> str:
    return f"{event.sender or 'somebody'} says: {brief(event.text, 2 * _MAX)}"


def _signal(rows: Rows, node: Node, event: ev.SignalReceived) -> str:
    return f"signal {event.name}: {brief(event.payload, _MAX)}"


def _wait(rows: Rows, node: Node, event: ev.WaitStarted) -> str:
    return f"waits {_awaited(rows, event.until, event.signal)}"


def _grace(rows: Rows, node: Node, event: ev.GraceStarted) -> str:
    return f"{brief(error_text(event.error), _MAX)}; leaves things in order {_awaited(rows, event.until, None)}"


def _cancel(rows: Rows, node: Node, event: ev.CancelRequested) -> str:
    return f"is being cancelled: {brief(event.reason or 'no reason given', _MAX)}"


def _finished(rows: Rows, node: Node, event: ev.RunFinished) -> str:
    row = node.row
    error = f", {brief(error_text(event.error), _MAX)}" if event.error else ""
    took = seconds(row.ended_at - row.began_at)
    return f"ends: {event.state}{error} ({number(rows.tokens(row.run))} tokens, {took})"


_LINES: dict[type[JournalEvent], Callable[[Rows, Node, Any], str]] = {
    ev.RunAccepted: _accepted,
    ev.ToolsetChanged: _toolset,
    ev.ModelCalled: _model_called,
    ev.ModelDeferred: _deferred,
    ev.ApprovalRequested: _requested,
    ev.ApprovalDecided: _decided,
    ev.CallTimedOut: _timed_out,
    ev.ToolCalled: _tool_called,
    ev.DelegateStarted: _delegated,
    ev.ToolAnswered: _tool_answered,
    ev.DelegateFinished: _joined,
    ev.CallRefused: _refused,
    ev.AnswerProposed: _proposed,
    ev.AnswerChecked: _checked,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
    ev.MessageReceived: _message,
    ev.SignalReceived: _signal,
    ev.WaitStarted: _wait,
    ev.GraceStarted: _grace,
    ev.CancelRequested: _cancel,
    ev.RunFinished: _finished,
}


def _name_of(rows: Rows, node: Node, call: str) -> str:
    row = rows.call(node.row.run, call)
    return row.name if row is not None else "a call"


def _awaited(rows: Rows, until: float | None, signal: str | None) -> str:
    # No time of day: the reader may be in another zone.
    length = seconds(max(until - rows.at, 0.0)) if until is not None else ""
    if signal is None:
        return f"for {length}" if length else "for its time"
    return f"for the signal {signal}" + (f", at most {length}" if length else "")


def _outcome(error: Any, output: Any) -> str:
    return f"failed: {brief(error_text(error), _MAX)}" if error else f"-> {brief(output, _MAX)}"
