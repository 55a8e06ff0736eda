"""What each event means, on a line of text. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.views.rows import Node, Row, Rows, run_key
from cadre.views.words import brief, call_text, error_text, number, seconds, too_late, verdict

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
    wanted = call_text(event.name, event.arguments, _MAX)
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
    return (
        f"{brief(error_text(event.error), _MAX)}; leaves things in order {_awaited(rows, event.until, None)}"
    )


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
