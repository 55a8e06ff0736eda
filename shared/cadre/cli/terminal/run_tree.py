"""The delegation tree of a run, folded from the events of the gateway's stream: pure, without any drawing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cadre.cli.terminal import labels

CallKind = Literal["tool", "member", "refused"]
CallState = Literal["held", "open", "ok", "failed"]

_TAIL = 400
"""Characters kept of an answer that is being written."""


@dataclass(frozen=True)
class Call:
    """One call of a step. A member's id is also the id of the child run it started."""

    id: str
    name: str
    kind: CallKind
    step: int
    arguments: Any = None
    state: CallState = "open"
    result: Any = None
    seconds: float | None = None
    remark: str = ""
    """Why it waits for a person, or what a person made of it."""


@dataclass(frozen=True)
class Node:
    """What is known of one run so far. Times are Unix seconds; tokens are without its children's."""

    run: str
    agent: str
    parent: str | None = None
    task: str = ""
    state: str = "running"
    doing: str = ""
    step: int = 0
    max_steps: int | None = None
    calls: tuple[Call, ...] = ()
    writing: str = ""
    """The end of the answer that the model is writing now."""
    tokens: int = 0
    model: str = ""
    """The name under which the model last answered."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the agent's spec wants."""
    missing: tuple[str, ...] = ()
    """Of those and the team, what no live service offers."""
    note: str = ""
    """The last error of a step that the model was shown."""
    error: str = ""
    output: Any = None
    started_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True)
class Tree:
    nodes: dict[str, Node] = field(default_factory=dict)

    @property
    def root(self) -> Node | None:
        """The first run heard of whose parent is not in the tree."""
        return next((node for node in self.nodes.values() if node.parent not in self.nodes), None)

    @property
    def scripted(self) -> bool:
        """Whether the scripted model had a part in it: it answers under this name, whatever it is asked for."""
        return any(node.model == "scripted" for node in self.nodes.values())

    def tokens(self, run: str) -> int:
        """Tokens of a run and everything below it."""
        return sum(
            node.tokens for node in self.nodes.values() if node.run == run or node.run.startswith(f"{run}_")
        )


def apply(tree: Tree, name: str, data: dict[str, Any]) -> Tree:
    """The tree after one event of the stream; an unknown event changes nothing.

    `name` is the SSE event name, `data` its decoded data. Give each journal event once: tokens are summed.
    """
    run = data.get("run")
    if name == "end" or not isinstance(run, str):
        return tree
    node = tree.nodes.get(run) or Node(run=run, agent=data.get("agent", ""), parent=data.get("parent"))
    if name == "delta":
        changed = _delta(node, data)
    else:
        change, doing = _CHANGES.get(name), labels.doing(name)
        if change is not None:
            changed = change(node, data.get("event") or {}, float(data.get("at") or 0.0))
        elif doing is not None:
            changed = replace(node, doing=doing)
        else:
            return tree
    return Tree({**tree.nodes, run: changed})


def _delta(node: Node, data: dict[str, Any]) -> Node:
    if node.state not in ("running", "waiting"):
        return node
    return replace(node, writing=(node.writing + data.get("text", ""))[-_TAIL:])


def _accepted(node: Node, event: dict[str, Any], at: float) -> Node:
    task, spec = event.get("task") or {}, event.get("spec") or {}
    steps = task.get("max_steps") or (spec.get("limits") or {}).get("max_steps")
    return replace(
        node,
        agent=task.get("agent", node.agent),
        task=task.get("task", ""),
        tools=(*(spec.get("tools") or ()), *(spec.get("checks") or ())),
        max_steps=steps,
        started_at=at,
    )


def _offer(node: Node, event: dict[str, Any], at: float) -> Node:
    return replace(node, missing=tuple(event.get("missing") or ()))


def _model_called(node: Node, event: dict[str, Any], at: float) -> Node:
    doing = labels.purpose(event.get("purpose", ""))
    if event.get("attempt", 1) > 1:
        doing += f", try {event['attempt']}"
    return replace(node, state="running", doing=doing, step=event.get("step", node.step), writing="")


def _model_answered(node: Node, event: dict[str, Any], at: float) -> Node:
    usage = event.get("usage") or {}
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    model = event.get("model") or node.model
    return replace(node, state="running", doing="", writing="", tokens=node.tokens + tokens, model=model)


def _model_deferred(node: Node, event: dict[str, Any], at: float) -> Node:
    wait = max(float(event.get("until") or at) - at, 0.0)
    doing = f"waiting {wait:.0f} s for the model: {event.get('reason', '')}"
    return replace(node, state="waiting", doing=doing, writing="")


def _tool_called(node: Node, event: dict[str, Any], at: float) -> Node:
    return _open(node, event, name=event.get("tool", ""), kind="tool", arguments=event.get("arguments") or {})


def _delegated(node: Node, event: dict[str, Any], at: float) -> Node:
    return _open(node, event, name=event.get("member", ""), kind="member", arguments=event.get("task", ""))


def _refused(node: Node, event: dict[str, Any], at: float) -> Node:
    opened = _open(
        node, event, name=event.get("name", ""), kind="refused", arguments=event.get("arguments") or {}
    )
    return _close(opened, event, seconds=None)


def _tool_answered(node: Node, event: dict[str, Any], at: float) -> Node:
    return _close(node, event, seconds=event.get("seconds"))


def _reported(node: Node, event: dict[str, Any], at: float) -> Node:
    return _close(node, event, seconds=None)


def _open(node: Node, event: dict[str, Any], *, name: str, kind: CallKind, arguments: Any) -> Node:
    identity = event.get("call", "")
    known = next((call for call in node.calls if call.id == identity), None)
    call = Call(id=identity, name=name, kind=kind, step=_step_of(node, identity), arguments=arguments)
    if known is None:
        return replace(node, calls=(*node.calls, call), doing="")
    if known.state != "held":
        return node
    return _with(node, replace(call, remark=known.remark))


def _with(node: Node, call: Call) -> Node:
    """The node with this call in the place of the one with its id; it waits as long as one is held."""
    calls = tuple(call if one.id == call.id else one for one in node.calls)
    held = sum(one.state == "held" for one in calls)
    if held:
        return replace(node, calls=calls, state="waiting", doing="waiting for approval")
    return replace(node, calls=calls, state="running", doing="")


def _held(node: Node, event: dict[str, Any], at: float) -> Node:
    kind: CallKind = "member" if event.get("kind") == "member" else "tool"
    name, arguments = event.get("name", ""), event.get("arguments") or {}
    opened = _open(node, event, name=name, kind=kind, arguments=arguments)
    call = next(one for one in opened.calls if one.id == event.get("call", ""))
    return _with(opened, replace(call, state="held", remark=event.get("reason", "")))


def _decided(node: Node, event: dict[str, Any], at: float) -> Node:
    call = next((one for one in node.calls if one.id == event.get("call")), None)
    if call is None:
        return node
    decision = verdict(event)
    if event.get("verdict") in ("rejected", "expired"):
        return _with(node, replace(call, state="failed", result=decision))
    return replace(
        node, calls=tuple(replace(one, remark=decision) if one is call else one for one in node.calls)
    )


def verdict(event: dict[str, Any]) -> str:
    """What an `approval.decided` says, in words."""
    if event.get("verdict") == "expired":
        return "nobody decided in time"
    said = event.get("feedback")
    return f"{event.get('verdict')} by {event.get('sender') or 'somebody'}" + (f": {said}" if said else "")


def _step_of(node: Node, identity: str) -> int:
    """Call ids are `<run>_<step>_<index>`."""
    _, found, rest = identity.partition(f"{node.run}_")
    step = rest.partition("_")[0]
    return int(step) if found and step.isdigit() else node.step


def _close(node: Node, event: dict[str, Any], *, seconds: float | None) -> Node:
    error = error_text(event.get("error"))
    failed = bool(error) or event.get("state", "success") not in ("success", "max_steps_error")
    result = error or event.get("output")
    calls = tuple(
        replace(call, state="failed" if failed else "ok", result=result, seconds=seconds)
        if call.id == event.get("call") and call.state != "failed"  # by then nobody waited for it any more
        else call
        for call in node.calls
    )
    return replace(node, calls=calls)


def _timed_out(node: Node, event: dict[str, Any], at: float) -> Node:
    late = {
        "call": event.get("call"),
        "state": "error",
        "output": f"no answer within {event.get('seconds', 0):g} s",
    }
    return _close(node, late, seconds=event.get("seconds"))


def _step_finished(node: Node, event: dict[str, Any], at: float) -> Node:
    return replace(node, doing="", note=error_text(event.get("error")))


def _cancelling(node: Node, event: dict[str, Any], at: float) -> Node:
    return replace(node, doing="being cancelled")


def _finished(node: Node, event: dict[str, Any], at: float) -> Node:
    return replace(
        node,
        state=event.get("state", "error"),
        doing="",
        writing="",
        note="",
        output=event.get("output"),
        error=error_text(event.get("error")),
        ended_at=at,
    )


_OF_CALLS = ("AgentToolExecutionError", "AgentToolCallError")


def error_text(error: dict[str, Any] | None) -> str:
    """`Type: message` of an ErrorInfo, of a call's the message alone; empty when there is none."""
    if not error:
        return ""
    kind, message = error.get("type", "error"), error.get("message", "")
    return _reason(message) if kind in _OF_CALLS else f"{kind}: {message}"


def _reason(message: str) -> str:
    """The message without the tool's name and arguments, which the viewer sees beside it anyway."""
    head, mark, rest = message.partition(" with arguments ")
    if not mark or not head.startswith(("Error executing tool ", "Invalid call of tool ")):
        return message
    try:
        _, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:  # long ones are cut
        return message
    return rest[end:].removeprefix(": ")


def lacks(node: Node) -> list[str]:
    """What the run's agent wants and nobody offers, and how to start it: a line for agents, one for tools."""
    tools = [name for name in node.missing if name in node.tools]
    members = [name for name in node.missing if name not in node.tools]
    lines = []
    if members:
        lines.append(f"no live agent {', '.join(members)}: start it with `cadre agent FILE`")
    if tools:
        lines.append(f"no live tool {', '.join(tools)}: start it with `cadre tools FILE`")
    return lines


_CHANGES = {
    "run.accepted": _accepted,
    "offer.changed": _offer,
    "model.called": _model_called,
    "model.answered": _model_answered,
    "model.deferred": _model_deferred,
    "approval.requested": _held,
    "approval.decided": _decided,
    "call.timed_out": _timed_out,
    "tool.called": _tool_called,
    "tool.answered": _tool_answered,
    "delegate.started": _delegated,
    "delegate.finished": _reported,
    "call.refused": _refused,
    "step.finished": _step_finished,
    "cancel.requested": _cancelling,
    "run.finished": _finished,
}
