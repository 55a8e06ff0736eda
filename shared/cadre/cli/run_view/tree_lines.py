"""The events of a run as timestamped lines, for pipes and logs."""

import time
from typing import Any

from cadre.cli.run_view import labels
from cadre.cli.run_view.run_tree import RunNode, RunTree, error_text, missing_lines, too_late, verdict
from cadre.views.words import brief, call_text, number, seconds

_MAX_CHARACTERS = 110


def event_line(tree: RunTree, name: str, data: dict[str, Any]) -> str | None:
    """The line for this event with its time; None when it is not worth one. `tree` is the tree after the event."""
    text = event_text(tree, name, data)
    if text is None:
        return None
    clock = time.strftime("%H:%M:%S", time.localtime(data.get("at") or 0))
    return f"{clock} {text}"


def event_text(tree: RunTree, name: str, data: dict[str, Any]) -> str | None:
    """The line without its time."""
    node = tree.nodes.get(data.get("run", ""))
    if node is None:
        return None
    if name == "run.accepted":
        # With its task, unless its manager's line has just shown it.
        text: str | None = "begins" + (
            "" if node.parent in tree.nodes else f": {brief(node.task, _MAX_CHARACTERS)}"
        )
    else:
        text = _text(node, name, data.get("event") or {})
    if text is None:
        return None
    if name == "run.finished":
        took = seconds((node.ended_at or 0) - node.started_at)
        text += f" ({number(tree.tokens(node.run))} tokens, {took})"
    depth = max(node.run.count("_") // 2, 0)
    return f"{'  ' * depth}{node.agent}: {text}"


def _text(node: RunNode, name: str, event: dict[str, Any]) -> str | None:
    match name:
        case "offer.changed" if event.get("missing"):
            return "; ".join(missing_lines(node))
        case "model.called" if event.get("reason"):
            why = brief(event["reason"], 2 * _MAX_CHARACTERS)
            return f"step {event.get('step')}: asks {event.get('model') or 'another model'} instead: {why}"
        case "model.called" if event.get("attempt", 1) > 1:
            return f"step {event.get('step')}: asks the model, try {event['attempt']}"
        case "model.called":
            purpose = "" if event.get("purpose", "act") == "act" else f" ({event['purpose']})"
            return f"step {event.get('step')}: asks the model{purpose}"
        case "model.deferred":
            return f"waits for the model: {brief(event.get('reason', ''), 2 * _MAX_CHARACTERS)}"
        case "approval.requested" if event.get("kind") == "question":
            asked = brief(event.get("reason", ""), 2 * _MAX_CHARACTERS)
            return f"asks a person: {asked}: cadre approve|reject {event.get('call')}"
        case "approval.requested":
            wanted = call_text(event.get("name", ""), event.get("arguments") or {}, _MAX_CHARACTERS)
            why = brief(event.get("reason", ""), _MAX_CHARACTERS)
            return f"waits for approval: {wanted} ({why}): cadre approve {event.get('call')}"
        case "approval.decided":
            return f"{_name_of(node, event)}: {brief(verdict(event), _MAX_CHARACTERS)}{_correction(event)}"
        case "call.timed_out":
            return f"{_name_of(node, event)}: {too_late(event)}"
        case "tool.called":
            return f"calls {event.get('tool')} {brief(event.get('arguments') or {}, _MAX_CHARACTERS)}"
        case "delegate.started":
            return f"asks {event.get('member')}: {brief(event.get('task', ''), _MAX_CHARACTERS)}"
        case "tool.answered":
            return f"{event.get('tool')} {_outcome(event)} ({seconds(event.get('seconds') or 0)})"
        case "delegate.finished":
            return f"{event.get('member')} {_outcome(event)}"
        case "call.refused":
            return f"{event.get('name')} {_outcome(event)}"
        case "answer.proposed":
            checks = event.get("checks") or {}
            return f"has an answer, checked by {brief(', '.join(dict.fromkeys(checks.values())), _MAX_CHARACTERS)}"
        case "answer.checked" if event.get("problem"):
            return f"answer turned down by {event.get('check')}: {brief(event['problem'], _MAX_CHARACTERS)}"
        case "step.started":
            again = f", try {event['attempt']}" if event.get("attempt", 1) > 1 else ""
            return f"step {event.get('step')}: {event.get('name') or 'begins'}{again}"
        case "step.finished" if event.get("error"):
            return f"step {event.get('step')} failed: {brief(error_text(event['error']), _MAX_CHARACTERS)}"
        case "message.received":
            return f"{event.get('sender') or 'somebody'} says: {brief(event.get('text', ''), 2 * _MAX_CHARACTERS)}"
        case "signal.received":
            return f"signal {event.get('name')}: {brief(event.get('payload'), _MAX_CHARACTERS)}"
        case "wait.started":
            return f"waits {_awaited(event)}"
        case "grace.started":
            return f"{brief(error_text(event['error']), _MAX_CHARACTERS)}; leaves things in order {_awaited(event)}"
        case "cancel.requested":
            return f"is being cancelled: {brief(event.get('reason') or 'no reason given', _MAX_CHARACTERS)}"
        case "run.finished":
            error = error_text(event.get("error"))
            return f"ends: {event.get('state')}" + (f", {brief(error, _MAX_CHARACTERS)}" if error else "")
        case _:
            return brief("; ".join(labels.lines(name, event)), 2 * _MAX_CHARACTERS) or None


def _awaited(event: dict[str, Any]) -> str:
    """For what a wait of the agent's kind is."""
    until, signal = event.get("until"), event.get("signal")
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(until)) if until is not None else ""
    words = [f"for the signal {signal}" if signal else "", f"until {clock}" if clock else ""]
    return " or ".join(word for word in words if word)


def _name_of(node: RunNode, event: dict[str, Any]) -> str:
    return next((call.name for call in node.calls if call.id == event.get("call")), "a call")


def _correction(event: dict[str, Any]) -> str:
    if event.get("verdict") != "corrected":
        return ""
    changed = call_text(event.get("name") or "with", event.get("arguments") or {}, _MAX_CHARACTERS)
    return f", now {changed}"


def _outcome(event: dict[str, Any]) -> str:
    if event.get("error"):
        return f"failed: {brief(error_text(event['error']), _MAX_CHARACTERS)}"
    return f"-> {brief(event.get('output'), _MAX_CHARACTERS)}"
