"""The rows of a tree of runs: runs, their steps, and what happened in each, with texts that are short. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.parts import JournalEvent, PieceOfWork
from cadre.journal.run import SUMMARY
from cadre.protocol.codes import ErrorInfo
from cadre.protocol.messages import Fork, RunState
from cadre.protocol.topology import is_within
from cadre.protocol.usage import Usage
from cadre.spec.kinds import declared_kinds, once
from cadre.views.words import brief, call_text, error_text, too_late, verdict

MAX_CHARS = 300
"""A text of a row is cut here; the whole of it is in the events that the row names."""

_MAX_LINES = 40
_MAX_EVENTS = 16

RowKind = Literal["run", "step", "model", "call", "work", "note"]
RowState = Literal["queued", "open", "held", "waiting", "ok", "failed", "dropped"]


class Awaited(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a wait, whichever comes first."""

    signal: str | None = None
    until: float | None = None


class RunFacts(msgspec.Struct, omit_defaults=True):
    """The facts that only the row of a run has."""

    parent: str | None = None
    """The run that delegated it."""
    ended: RunState | None = None
    """The way in which it has ended, if it has."""
    step: int = 0
    """Number of the step in work."""
    max_steps: int | None = None
    model: str = ""
    """The name under which its model last answered."""
    forks: Fork | None = None
    """The run whose first steps it took over."""
    missing: list[str] = []
    """The tools and agents that it wants and no live service offers, and how to start them: a line each."""
    cancelling: bool = False
    """It was asked to end."""


class AskedFor(msgspec.Struct, frozen=True):
    """The model call of a run that a row stands for, as deltas and `GET /v1/runs/ID/steps/N/request` name it."""

    step: int
    purpose: str
    attempt: int


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One row. Times are Unix seconds, 0 for what has not come."""

    key: str
    """Names the row in its tree, for ever."""
    parent: str = ""
    """Key of the row that it stands under; of a run, that of the call which began it."""
    run: str
    kind: RowKind
    name: str = ""
    state: RowState = "open"
    text: str = ""
    """Its present text, on a line. A list shows this and `name`."""
    words: str = ""
    """Of a run: what it does at the moment. Of a step: its name."""
    remark: str = ""
    """Of a run: what went wrong last, or what a person said. Of a call: why it is held, what was decided. Of a model:
    why it is asked, or has not answered."""
    asked_at: float = 0.0
    """The time at which it began to be owed."""
    began_at: float = 0.0
    """The time at which work on it began."""
    ended_at: float = 0.0
    is_question: bool = False
    """A person is asked, and no call follows."""
    usage: Usage | None = None
    """Of a run: without the runs below it. Of a model: of its answer."""
    waits: Awaited | None = None
    brief: str = ""
    """Of a run: its task. Of a call: its arguments as `(name=value, …)`, of a member its task. Of work: the task. Of a
    model: its answer. Of a note: what it says."""
    result: str = ""
    error: str = ""
    """The error: `Type: message`, of a call only the message."""
    lines: Sequence[str] = ()
    """Of a run: what the latest event of its kind's own means; of a note: what it means."""
    is_minor: bool = False
    """Of a note: it says nothing that other rows do not; a reader may fold it."""
    facts: RunFacts | None = None
    asked_for: AskedFor | None = None
    """Of a model."""
    events: list[tuple[int, int]] = []
    """The events that made it: position of the entry in its run's journal and place in the entry, both from 1. Of a
    run, how it began and ended; of others, when there are many, the first ones and the last."""
    seq: int = 0
    """Stream sequence of the entry, of this run or of another one, that changed it last."""


class Line(msgspec.Struct, frozen=True):
    """The meaning of one event, on a line. `at` is in Unix seconds."""

    seq: int
    at: float
    run: str
    event: str
    """Name of the event."""
    text: str
    """Indented by the depth of its run."""


class RowsChanged(msgspec.Struct, omit_defaults=True):
    """The changes in a tree: the rows, each as it is now, and what happened, in lines."""

    seq: int
    """Stream sequence up to which this goes."""
    rows: Sequence[Row] = ()
    lines: Sequence[Line] = ()


class Node:
    """A run with what its rows do not say."""

    def __init__(self, row: Row, facts: RunFacts) -> None:
        self.row = row
        self.facts = facts
        self.tools: frozenset[str] = frozenset()
        self.model = ""
        """Key of the row of the model call that is open."""
        self.held: set[str] = set()
        """Keys of the calls that wait for a person."""
        self.open: set[str] = set()
        """Keys of all its rows that are not over."""


def run_key(run: str) -> str:
    """Return the key of a run's row."""
    return f"run:{run}"


def call_key(call: str) -> str:
    """Return the key of a call's row."""
    return f"call:{call}"


class Rows:
    """The rows of a tree as far as its entries were taken in. Those that changed last come last."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.nodes: dict[str, Node] = {}
        """By run."""
        self._changed: dict[str, Row] = {}
        self._seq = self._n = 0
        self._run = ""
        self.at = 0.0
        """Time of the entry that is taken in, in Unix seconds."""
        self._place = 0

    def begin(self, seq: int, entry: Entry) -> Node:
        """Begin with an entry; returns the run's node. Then follow its events, by `apply`, and `end`."""
        self._seq, self._n, self.at, self._changed, self._place = seq, entry.n, entry.at, {}, 0
        self._run = entry.run
        node = self.nodes.get(entry.run)
        if node is None:
            facts = RunFacts(parent=entry.parent)
            row = Row(
                key=run_key(entry.run),
                parent=call_key(entry.run) if entry.parent is not None else "",
                run=entry.run,
                kind="run",
                name=entry.agent,
                asked_at=entry.at,
                began_at=entry.at,
                usage=Usage(),
                facts=facts,
            )
            node = self.nodes[entry.run] = Node(row, facts)
        self._touch(node.row)
        return node

    def apply(self, node: Node, event: JournalEvent) -> None:
        """Take in the next event of the entry."""
        self._place += 1
        if (change := _CHANGES.get(type(event))) is not None:
            change(self, node, event)
        else:
            self._describe(node, event)

    def end(self) -> list[Row]:
        """Return the rows that the entry has changed."""
        for key in self._changed:
            if key in self.rows:
                del self.rows[key]
        self.rows.update(self._changed)
        return list(self._changed.values())

    def since(self, seq: int) -> list[Row]:
        """Return the rows that entries behind the sequence `seq` have changed, the oldest change first."""
        found = []
        for row in reversed(self.rows.values()):
            if row.seq <= seq:
                break
            found.append(row)
        return found[::-1]

    def tokens(self, run: str) -> int:
        """Return the tokens of a run and of all runs below it."""
        usages = (node.row.usage for name, node in self.nodes.items() if is_within(name, run))
        return sum(usage.total_tokens for usage in usages if usage is not None)

    def _touch(self, row: Row) -> Row:
        row.seq = self._seq
        self._changed[row.key] = row
        if row.kind != "run":
            self._cite(row)
        return row

    def _cite(self, row: Row) -> None:
        """Name the event that is taken in as one of those that made the row."""
        event = self._n, self._place
        if row.run == self._run and row.events[-1:] != [event]:
            if len(row.events) == _MAX_EVENTS:
                row.events.pop()
            row.events.append(event)

    def _put(self, node: Node, row: Row) -> Row:
        self.rows[row.key] = row
        if not row.ended_at:
            node.open.add(row.key)
        return self._touch(row)

    def _close(self, node: Node, row: Row, state: RowState) -> Row:
        row.state, row.ended_at = state, self.at
        node.open.discard(row.key)
        return self._touch(row)

    def _step(self, node: Node, number: int) -> Row:
        key = f"step:{node.row.run}:{number}"
        row = self.rows.get(key) or self._changed.get(key)
        if row is None:
            before = self.rows.get(f"step:{node.row.run}:0")
            if number and before is not None and not before.ended_at:
                self._close(node, before, "ok")
            row = Row(
                key=key,
                parent=node.row.key,
                run=node.row.run,
                kind="step",
                name=f"Step {number}" if number else "Before the first step",
                asked_at=self.at,
                began_at=self.at,
            )
            self._put(node, row)
        return row

    def _note(
        self, node: Node, event: JournalEvent, text: str, lines: Sequence[str] = (), *, is_minor: bool = False
    ) -> None:
        step = getattr(event, "step", None)
        row = Row(
            key=f"note:{node.row.run}:{self._n}.{self._place}",
            parent=self._step(node, step if isinstance(step, int) else node.facts.step).key,
            run=node.row.run,
            kind="note",
            name=str(event.__struct_config__.tag),
            state="ok",
            asked_at=self.at,
            began_at=self.at,
            ended_at=self.at,
            brief=brief(text, MAX_CHARS),
            lines=[brief(line, MAX_CHARS) for line in lines[:_MAX_LINES]],
            is_minor=is_minor,
        )
        self._put(node, row)

    def _describe(self, node: Node, event: JournalEvent) -> None:
        """Take in an event of a kind's own."""
        doing, lines, work, _, used, _ = event.describe()
        row = node.row
        if doing is not None:
            row.words = doing
        if lines:
            row.lines = [brief(line, MAX_CHARS) for line in lines[:_MAX_LINES]]
        if used is not None:
            _use(row, used)
        for one in work:
            self._work(node, one)
        if not work:
            self._note(node, event, "; ".join(lines) or _fields(event), lines, is_minor=not lines)

    def _work(self, node: Node, work: PieceOfWork) -> None:
        if work.replaces:
            for key in list(node.open):
                row = self.rows[key]
                if row.kind == "work" and row.state == "queued":
                    self._close(node, row, "dropped")
        key = f"work:{node.row.run}:{work.id}"
        known = self.rows.get(key)
        if known is None:
            row = Row(
                key=key,
                parent=self._step(node, node.facts.step).key,
                run=node.row.run,
                kind="work",
                asked_at=self.at,
            )
            self._put(node, row)
        else:
            row = known
        row.name, row.state = work.name or row.name, work.state
        row.ended_at = 0.0
        if work.text:
            row.brief = brief(work.text, MAX_CHARS)
        if work.state == "queued":
            row.began_at, row.result, row.error = 0.0, "", ""
        elif not row.began_at:
            row.began_at = min(work.began_at or self.at, self.at)
        elif work.seconds and row.began_at == row.asked_at:  # it went through at once: the rest was the queue
            row.began_at = max(self.at - work.seconds, row.asked_at)
        if not work.is_over:
            node.open.add(key)
            self._touch(row)
            return
        row.error = _error_brief(work.error)
        row.result = brief(work.result, MAX_CHARS) if work.result is not None else ""
        self._close(node, row, work.state)

    def accept(self, node: Node, event: ev.RunAccepted) -> None:
        task, row, facts = event.task, node.row, node.facts
        row.name, row.brief = task.agent or row.name, brief(task.task, MAX_CHARS)
        row.asked_at, row.began_at = min(task.at, self.at), self.at
        self._cite(row)
        node.tools = frozenset((*event.spec.tools, *event.spec.checks))
        facts.max_steps, facts.forks = task.max_steps or event.spec.limits.max_steps, task.forks

    def toolset(self, node: Node, event: ev.ToolsetChanged) -> None:
        tools = [name for name in event.missing if name in node.tools]
        members = [name for name in event.missing if name not in node.tools]
        node.facts.missing = []
        if members:
            node.facts.missing.append(f"no agent {', '.join(members)}: start it with `cadre agent FILE`")
        if tools:
            node.facts.missing.append(f"no tool {', '.join(tools)}: start it with `cadre tools FILE`")

    def call_model(self, node: Node, event: ev.ModelCalled) -> None:
        name = purpose_text(event.purpose) + (f", try {event.attempt}" if event.attempt > 1 else "")
        node.row.state, node.row.words, node.facts.step = "open", name, event.step
        if (open_row := self.rows.get(node.model)) is not None and not open_row.ended_at:
            self._close(node, open_row, "dropped")  # a worker died, or a message came between
        row = Row(
            key=f"model:{node.row.run}:{self._n}.{self._place}",
            parent=self._step(node, event.step).key,
            run=node.row.run,
            kind="model",
            name=name,
            remark=brief(event.reason, MAX_CHARS),
            asked_at=self.at,
            asked_for=AskedFor(event.step, event.purpose, event.attempt),
        )
        node.model = self._put(node, row).key

    def answer_model(self, node: Node, event: ev.ModelAnswered) -> None:
        run = node.row
        run.state, run.words = "open", ""
        node.facts.model = event.model or node.facts.model
        _use(run, event.usage + Usage(model_calls=1))
        if (row := self.rows.get(node.model)) is None:
            return
        row.usage = Usage() + event.usage
        row.began_at = min(max(self.at - event.seconds, row.asked_at), self.at)
        row.brief = brief(event.content or ", ".join(call.name for call in event.calls), MAX_CHARS)
        self._close(node, row, "ok")

    def defer_model(self, node: Node, event: ev.ModelDeferred) -> None:
        wait = max(event.until - self.at, 0.0)
        node.row.state = "waiting"
        node.row.words = f"waiting {wait:.0f} s for the model: {brief(event.reason, MAX_CHARS)}"
        self._fail_model(node, event.reason)

    def overflow(self, node: Node, event: ev.ContextOverflowed) -> None:
        self._fail_model(node, event.reason)

    def _fail_model(self, node: Node, reason: str) -> None:
        if (row := self.rows.get(node.model)) is not None:
            row.remark = brief(reason, MAX_CHARS)
            self._close(node, row, "failed")

    def summarize(self, node: Node, event: ev.HistorySummarized) -> None:
        self._note(node, event, f"{event.covers} earlier steps summarized")

    def call(self, run: str, call: str) -> Row | None:
        """Return the row of a call of this run."""
        row = self.rows.get(call_key(call))
        return row if row is not None and row.run == run else None

    def _open_call(self, node: Node, call: str, name: str, arguments: Any) -> Row:
        row = self.call(node.row.run, call)
        if row is not None and row.state not in ("held", "waiting", "open"):
            return row
        if row is None:
            row = Row(
                key=call_key(call),
                parent=self._step(node, _step_of(node, call)).key,
                run=node.row.run,
                kind="call",
                asked_at=self.at,
            )
            self._put(node, row)
        row.name, row.state = name, "open"
        is_text = isinstance(arguments, str)
        row.brief = brief(arguments, MAX_CHARS) if is_text else call_text("", arguments, MAX_CHARS)
        node.held.discard(row.key)
        self._settle(node)
        return self._touch(row)

    def _close_call(
        self, node: Node, call: str, error: ErrorInfo | None, result: Any = None, *, state: RowState = "ok"
    ) -> None:
        row = self.call(node.row.run, call)
        if row is None or row.ended_at:  # nothing waited for it any more
            return
        row.error = _error_brief(error)
        row.result = brief(result, MAX_CHARS) if result is not None else ""
        row.began_at = row.began_at or row.asked_at
        node.held.discard(row.key)
        self._close(node, row, "failed" if error is not None else state)

    def _settle(self, node: Node) -> None:
        held = bool(node.held)
        node.row.state, node.row.words = ("waiting", "waiting for approval") if held else ("open", "")

    def hold(self, node: Node, event: ev.ApprovalRequested) -> None:
        row = self._open_call(node, event.call, event.name or "question", event.arguments)
        if row.ended_at:
            return
        row.state, row.remark = "held", brief(event.reason, MAX_CHARS)
        node.held.add(row.key)
        if event.kind == "question" and row.waits is None:
            row.is_question = True
        self._settle(node)

    def decide(self, node: Node, event: ev.ApprovalDecided) -> None:
        row = self.call(node.row.run, event.call)
        if row is None or row.ended_at:
            return
        node.held.discard(row.key)
        row.remark, row.began_at = brief(verdict(event), MAX_CHARS), self.at
        if event.verdict in ("rejected", "expired"):
            row.result = row.remark
            self._close(node, row, "failed")
        elif row.is_question:
            row.result = brief(event.feedback or "yes", MAX_CHARS)
            self._close(node, row, "ok")
        else:
            row.state = "open"
            self._touch(row)
        self._settle(node)

    def rule(self, node: Node, event: ev.PolicyDecided) -> None:
        """The call's own event follows; the row names this one as well, for where the call's values stood."""
        self._open_call(node, event.call, event.name, {})

    def call_tool(self, node: Node, event: ev.ToolCalled) -> None:
        self._open_call(node, event.call, event.tool, event.arguments).waits = None

    def pause_tool(self, node: Node, event: ev.ToolPaused) -> None:
        row = self.call(node.row.run, event.call)
        if row is not None and not row.ended_at:
            row.state, row.waits = "waiting", Awaited(until=event.until)
            self._touch(row)

    def delegate(self, node: Node, event: ev.DelegateStarted) -> None:
        self._open_call(node, event.call, event.member, event.task)

    def refuse(self, node: Node, event: ev.CallRefused) -> None:
        self._open_call(node, event.call, event.name, event.arguments)
        self._close_call(node, event.call, event.error)

    def answer_tool(self, node: Node, event: ev.ToolAnswered) -> None:
        row = self.call(node.row.run, event.call)
        if row is not None and not row.ended_at:
            began = event.started_at or self.at - event.seconds
            row.began_at = min(max(began, row.asked_at), self.at)
        self._close_call(node, event.call, event.error, event.output)

    def join(self, node: Node, event: ev.DelegateFinished) -> None:
        state: RowState = "ok" if event.state in ("success", "max_steps_error") else "failed"
        self._close_call(node, event.call, event.error, event.output, state=state)

    def time_out(self, node: Node, event: ev.CallTimedOut) -> None:
        self._close_call(node, event.call, None, too_late(event), state="failed")

    def drop(self, node: Node, event: ev.CallDropped) -> None:
        self._close_call(node, event.call, None, event.reason, state="dropped")

    def propose(self, node: Node, event: ev.AnswerProposed) -> None:
        self._note(node, event, f"an answer, checked by {', '.join(dict.fromkeys(event.checks.values()))}")

    def check(self, node: Node, event: ev.AnswerChecked) -> None:
        text = f"turned down by {event.check}: {event.problem}" if event.problem else f"passed {event.check}"
        self._note(node, event, text)

    def start_step(self, node: Node, event: ev.StepStarted) -> None:
        words = event.name + (f", try {event.attempt}" if event.attempt > 1 else "")
        node.row.state, node.row.words, node.facts.step = "open", words, event.step
        step = self._step(node, event.step)
        step.words = event.name
        self._touch(step)

    def finish_step(self, node: Node, event: ev.StepFinished) -> None:
        node.row.words, node.row.remark = "", _error_brief(event.error)
        row = self._step(node, event.step)
        row.error = _error_brief(event.error)
        ended: RowState = "failed" if event.error is not None else "dropped" if node.facts.cancelling else "ok"
        self._close(node, row, ended)

    def ask_memory(self, node: Node, event: ev.MemoryAsked) -> None:
        self._note(node, event, f"searches its memory for {event.query}", is_minor=True)

    def recall(self, node: Node, event: ev.MemoryRecalled) -> None:
        found = len(event.memories)
        text = f"recalls {found} {'memory' if found == 1 else 'memories'}" if found else "recalls nothing"
        why = error_text(event.error) or event.degraded
        self._note(node, event, f"{text}: {why}" if why else text, is_minor=not found and not why)

    def plan_tools(self, node: Node, event: ev.ToolsPlanned) -> None:
        self._note(node, event, f"may call {', '.join(event.tools) or 'nothing'}", is_minor=True)

    def edit(self, node: Node, event: ev.EditApplied) -> None:
        self._note(node, event, f"{event.sender or 'somebody'} changes what it plans to do")

    def refuse_edit(self, node: Node, event: ev.EditRefused) -> None:
        self._note(node, event, f"the change by {event.sender or 'somebody'} is refused: {event.reason}")

    def hear(self, node: Node, event: ev.MessageReceived) -> None:
        node.row.remark = brief(f"{event.sender or 'somebody'} says: {event.text}", MAX_CHARS)
        self._note(node, event, node.row.remark)

    def signal(self, node: Node, event: ev.SignalReceived) -> None:
        self._note(node, event, f"signal {event.name}")

    def wait(self, node: Node, event: ev.WaitStarted) -> None:
        node.row.state, node.row.waits = "waiting", Awaited(event.signal, event.until)
        node.row.words = f"waiting for the signal {event.signal}" if event.signal else "waiting for its time"
        self._note(node, event, node.row.words)

    def go_on(self, node: Node, event: ev.WaitFinished) -> None:
        node.row.state, node.row.waits, node.row.words = "open", None, ""
        self._note(node, event, f"the signal {event.signal} came" if event.signal else "its time came")

    def grace(self, node: Node, event: ev.GraceStarted) -> None:
        node.row.words, node.row.remark = "", _error_brief(event.error)
        self._note(node, event, error_text(event.error))

    def cancel(self, node: Node, event: ev.CancelRequested) -> None:
        node.row.words, node.facts.cancelling = "being cancelled", True
        self._note(node, event, event.reason or "no reason given")

    def ignore(self, node: Node, event: ev.RecordIgnored) -> None:
        _use(node.row, event.usage)

    def finish(self, node: Node, event: ev.RunFinished) -> None:
        if node.facts.ended is not None:
            return
        row = node.row
        row.result = brief(event.output, MAX_CHARS) if event.output is not None else ""
        row.error, node.facts.ended = _error_brief(event.error), event.state
        self._cite(row)
        self._finish(node, _ENDS.get(event.state, "failed"))
        # What is below was asked to end too, and may end later.
        for run, below in self.nodes.items():
            if not below.row.ended_at and is_within(run, row.run):
                self._finish(below, "dropped")
                self._touch(below.row)

    def _finish(self, node: Node, state: RowState) -> None:
        row = node.row
        row.state, row.words, row.remark, row.waits, row.ended_at = state, "", "", None, self.at
        for key in list(node.open):
            inner = self.rows[key]
            is_step = inner.kind == "step"
            self._close(node, inner, "dropped" if not is_step or state == "dropped" else _step_end(node))
        node.held.clear()


_ENDS: dict[RunState, RowState] = {"success": "ok", "cancelled": "dropped"}

_CHANGES: dict[type[JournalEvent], Callable[[Rows, Node, Any], None]] = {
    ev.RunAccepted: Rows.accept,
    ev.ToolsetChanged: Rows.toolset,
    ev.ModelCalled: Rows.call_model,
    ev.ModelAnswered: Rows.answer_model,
    ev.ModelDeferred: Rows.defer_model,
    ev.ContextOverflowed: Rows.overflow,
    ev.HistorySummarized: Rows.summarize,
    ev.ApprovalRequested: Rows.hold,
    ev.ApprovalDecided: Rows.decide,
    ev.PolicyDecided: Rows.rule,
    ev.ToolCalled: Rows.call_tool,
    ev.ToolPaused: Rows.pause_tool,
    ev.DelegateStarted: Rows.delegate,
    ev.CallRefused: Rows.refuse,
    ev.ToolAnswered: Rows.answer_tool,
    ev.CallTimedOut: Rows.time_out,
    ev.CallDropped: Rows.drop,
    ev.DelegateFinished: Rows.join,
    ev.AnswerProposed: Rows.propose,
    ev.AnswerChecked: Rows.check,
    ev.StepStarted: Rows.start_step,
    ev.StepFinished: Rows.finish_step,
    ev.MessageReceived: Rows.hear,
    ev.MemoryAsked: Rows.ask_memory,
    ev.MemoryRecalled: Rows.recall,
    ev.ToolsPlanned: Rows.plan_tools,
    ev.EditApplied: Rows.edit,
    ev.EditRefused: Rows.refuse_edit,
    ev.SignalReceived: Rows.signal,
    ev.WaitStarted: Rows.wait,
    ev.WaitFinished: Rows.go_on,
    ev.GraceStarted: Rows.grace,
    ev.CancelRequested: Rows.cancel,
    ev.RecordIgnored: Rows.ignore,
    ev.RunFinished: Rows.finish,
}


def _step_end(node: Node) -> RowState:
    """Return how a step has ended that its run has ended in."""
    return "failed" if node.facts.ended == "error" else "ok"


@once
def _purposes() -> dict[str, str]:
    kinds = declared_kinds().values()
    return {name: text for kind in kinds for name, text in kind.purposes.items()} | {
        SUMMARY: "summarizing earlier steps"
    }


def purpose_text(purpose: str) -> str:
    """Return what a run does while its model is asked for this purpose."""
    return _purposes().get(purpose, "thinking")


def _use(row: Row, used: Usage) -> None:
    row.usage = (row.usage or Usage()) + used


def _fields(event: JournalEvent) -> str:
    """Return an event's fields as JSON, or as much of it as a row shows."""
    return "{" + msgspec.json.encode(event)[: 4 * MAX_CHARS].decode(errors="ignore").partition(",")[2]


def _error_brief(error: ErrorInfo | None) -> str:
    return brief(error_text(error), MAX_CHARS) if error is not None else ""


def _step_of(node: Node, call: str) -> int:
    """Return the step of a call; call ids are `<run>_<step>_<index>`."""
    prefix = node.row.run + "_"
    if call.startswith(prefix):
        step = call[len(prefix) :].partition("_")[0]
        if step.isdigit():
            return int(step)
    return node.facts.step
