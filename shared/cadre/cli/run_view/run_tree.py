"""The delegation tree of a run, folded from the events of the gateway's stream: pure, without any drawing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cadre.cli.run_view import labels
from cadre.cli.run_view.plan_lines import PlanLine, plan_after
from cadre.protocol.codes import ErrorCode
from cadre.protocol.topology import is_within

CallKind = Literal["tool", "member", "refused"]
CallState = Literal["held", "open", "ok", "failed"]

_MAX_WRITING = 400
"""Characters kept of an answer that is being written."""


@dataclass(frozen=True)
class CallNode:
    """One call of a step. If it calls a team member, its id is also the id of the child run."""

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
class RunNode:
    """What is known of one run so far. Times are Unix seconds; tokens are without its children's."""

    run: str
    agent: str
    parent: str | None = None
    task: str = ""
    state: str = "running"
    doing: str = ""
    step: int = 0
    max_steps: int | None = None
    calls: tuple[CallNode, ...] = ()
    plan: tuple[PlanLine, ...] = ()
    writing: str = ""
    """The end of the answer that the model is writing now."""
    tokens: int = 0
    model: str = ""
    """The name under which the model last answered."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the agent's spec wants."""
    missing: tuple[str, ...] = ()
    """Names among the tools and the team that no live service offers."""
    told: Sequence[str] = ()
    """What the latest event of its kind's own tells."""
    note: str = ""
    """The last error of a step that the model was shown."""
    error: str = ""
    output: Any = None
    started_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True)
class RunTree:
    """All runs of a tree that events have told of, by id."""

    nodes: dict[str, RunNode] = field(default_factory=dict)

    @property
    def root(self) -> RunNode | None:
        """The first run whose parent is not in the tree; None before the first event."""
        return next((node for node in self.nodes.values() if node.parent not in self.nodes), None)

    @property
    def scripted(self) -> bool:
        """Whether the scripted model answered any call: it answers under this name, whatever model was asked for."""
        return any(node.model == "scripted" for node in self.nodes.values())

    def tokens(self, run: str) -> int:
        """Tokens of a run and everything below it."""
        return sum(node.tokens for node in self.nodes.values() if is_within(node.run, run))


def apply(tree: RunTree, name: str, data: dict[str, Any]) -> RunTree:
    """The tree after one event of the stream; an unknown event changes nothing.

    `name` is the SSE event name, `data` its decoded data. Give each journal event once: tokens are summed.
    """
    run = data.get("run")
    if name == "end" or not isinstance(run, str):
        return tree
    node = tree.nodes.get(run) or RunNode(run=run, agent=data.get("agent", ""), parent=data.get("parent"))
    if name == "delta":
        changed: RunNode | None = _with_delta(node, data.get("text", ""))
    else:
        changed = _changed(node, name, data.get("event") or {}, float(data.get("at") or 0.0))
    return tree if changed is None else RunTree({**tree.nodes, run: changed})


def _changed(node: RunNode, name: str, event: dict[str, Any], at: float) -> RunNode | None:
    """The node after an event of its run's journal at the time `at`; None for an event that changes nothing."""
    arguments = event.get("arguments") or {}
    match name:
        case "run.accepted":
            return _accepted(node, event, at)
        case "offer.changed":
            return replace(node, missing=tuple(event.get("missing") or ()))
        case "model.called" | "step.started":
            return _begun(node, event)
        case "model.answered":
            return _answered(node, event)
        case "model.deferred":
            wait = max(float(event.get("until") or at) - at, 0.0)
            doing = f"waiting {wait:.0f} s for the model: {event.get('reason', '')}"
            return replace(node, state="waiting", doing=doing, writing="")
        case "approval.requested":
            return _held(node, event)
        case "approval.decided":
            return _decided(node, event)
        case "call.timed_out":
            return _close(node, {**event, "state": "error", "output": too_late(event)})
        case "call.dropped":
            return _close(node, {**event, "state": "error", "output": event.get("reason")})
        case "tool.called":
            return _open(node, event, event.get("tool", ""), "tool", arguments)
        case "delegate.started":
            return _open(node, event, event.get("member", ""), "member", event.get("task", ""))
        case "tool.answered":
            return _close(node, event)
        case "delegate.finished":
            return _close(node, {**event, "seconds": None})
        case "call.refused":
            opened = _open(node, event, event.get("name", ""), "refused", arguments)
            return _close(opened, {**event, "seconds": None})
        case "step.finished" | "grace.started":
            return replace(node, doing="", note=error_text(event.get("error")))
        case "message.received":
            return replace(node, note=f"{event.get('sender') or 'somebody'} says: {event.get('text', '')}")
        case "wait.started":
            signal = event.get("signal")
            doing = f"waiting for the signal {signal}" if signal else "waiting for its time"
            return replace(node, state="waiting", doing=doing, writing="")
        case "wait.finished":
            return replace(node, state="running", doing="")
        case "plan.made" | "plan.step_started" | "plan.step_finished":
            return replace(node, plan=plan_after(node.plan, name, event))
        case "cancel.requested":
            return replace(node, doing="being cancelled")
        case "run.finished":
            ended = replace(
                node, state=event.get("state", "error"), doing="", writing="", note="", ended_at=at
            )
            return replace(ended, output=event.get("output"), error=error_text(event.get("error")))
        case _ if (words := labels.doing(name)) is not None:
            return replace(node, doing=words, told=labels.lines(name, event) or node.told)
        case _:
            return None


def _answered(node: RunNode, event: dict[str, Any]) -> RunNode:
    """The node with the model's answer, and the tokens that it took."""
    usage = event.get("usage") or {}
    tokens = node.tokens + usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    model = event.get("model") or node.model
    return replace(node, state="running", doing="", writing="", tokens=tokens, model=model)


def _accepted(node: RunNode, event: dict[str, Any], at: float) -> RunNode:
    """The node with what its run was asked to do, and by which agent."""
    task, spec = event.get("task") or {}, event.get("spec") or {}
    return replace(
        node,
        agent=task.get("agent", node.agent),
        task=task.get("task", ""),
        tools=(*(spec.get("tools") or ()), *(spec.get("checks") or ())),
        max_steps=task.get("max_steps") or (spec.get("limits") or {}).get("max_steps"),
        started_at=at,
    )


def _begun(node: RunNode, event: dict[str, Any]) -> RunNode:
    """The node with a model call, or a step without one, under way."""
    attempt = event.get("attempt", 1)
    begins_step = event.get("type") == "step.started"
    doing = event.get("name", "") if begins_step else labels.purpose(event.get("purpose", "act"))
    doing += f", try {attempt}" if attempt > 1 else ""
    return replace(node, state="running", doing=doing, step=event.get("step", node.step), writing="")


def _with_delta(node: RunNode, text: str) -> RunNode:
    if node.state not in ("running", "waiting"):
        return node
    return replace(node, writing=(node.writing + text)[-_MAX_WRITING:])


def _open(node: RunNode, event: dict[str, Any], name: str, kind: CallKind, arguments: Any) -> RunNode:
    """The node with one more call, or with the held call of this id let go on."""
    identity = event.get("call", "")
    known = _call(node, identity)
    call = CallNode(id=identity, name=name, kind=kind, step=_step_of(node, identity), arguments=arguments)
    if known is None:
        return replace(node, calls=(*node.calls, call), doing="")
    return _with(node, replace(call, remark=known.remark)) if known.state == "held" else node


def _close(node: RunNode, event: dict[str, Any]) -> RunNode:
    call = _call(node, event.get("call"))
    if call is None or call.state == "failed":  # by then nobody waited for it any more
        return node
    error = error_text(event.get("error"))
    failed = bool(error) or event.get("state", "success") not in ("success", "max_steps_error")
    state: CallState = "failed" if failed else "ok"
    return _replaced(
        node, replace(call, state=state, result=error or event.get("output"), seconds=event.get("seconds"))
    )


def _held(node: RunNode, event: dict[str, Any]) -> RunNode:
    kind: CallKind = "member" if event.get("kind") == "member" else "tool"
    opened = _open(node, event, event.get("name", ""), kind, event.get("arguments") or {})
    call = _call(opened, event.get("call", ""))
    assert call is not None
    return _with(opened, replace(call, state="held", remark=event.get("reason", "")))


def _decided(node: RunNode, event: dict[str, Any]) -> RunNode:
    call = _call(node, event.get("call"))
    if call is None:
        return node
    decision = verdict(event)
    if event.get("verdict") in ("rejected", "expired"):
        return _with(node, replace(call, state="failed", result=decision))
    return _replaced(node, replace(call, remark=decision))


def _call(node: RunNode, identity: object) -> CallNode | None:
    return next((call for call in node.calls if call.id == identity), None)


def _replaced(node: RunNode, call: CallNode) -> RunNode:
    """The node with this call in the place of the one with its id."""
    return replace(node, calls=tuple(call if one.id == call.id else one for one in node.calls))


def _with(node: RunNode, call: CallNode) -> RunNode:
    """The node with this call in place, waiting as long as any of its calls is held."""
    changed = _replaced(node, call)
    if any(one.state == "held" for one in changed.calls):
        return replace(changed, state="waiting", doing="waiting for approval")
    return replace(changed, state="running", doing="")


def _step_of(node: RunNode, identity: str) -> int:
    """The step of a call; call ids are `<run>_<step>_<index>`."""
    _, found, rest = identity.partition(f"{node.run}_")
    step = rest.partition("_")[0]
    return int(step) if found and step.isdigit() else node.step


def verdict(event: dict[str, Any]) -> str:
    """What an `approval.decided` says, in words."""
    if event.get("verdict") == "expired":
        return "nobody decided in time"
    feedback = event.get("feedback")
    return f"{event.get('verdict')} by {event.get('sender') or 'somebody'}" + (
        f": {feedback}" if feedback else ""
    )


_CALL_ERRORS: tuple[ErrorCode, ...] = ("tool-failed", "member-failed", "timed-out", "invalid-call")


def error_text(error: dict[str, Any] | None) -> str:
    """Return `Type: message` of an ErrorInfo, of a call's the message alone, without the call that the viewer shows
    anyway; empty when there is none."""
    if not error:
        return ""
    message = error.get("message", "")[error.get("preamble", 0) :]
    return message if error.get("code") in _CALL_ERRORS else f"{error.get('type', 'error')}: {message}"


def too_late(event: dict[str, Any]) -> str:
    """Say why a call was given up, by its `call.timed_out`."""
    after = f"{event.get('seconds', 0):g} s"
    return f"given up after {after}: nothing serves it" if event.get("code") else f"no answer within {after}"


def missing_lines(node: RunNode) -> list[str]:
    """Lines that say which agents and tools the run's agent wants and were never there, and how to start them."""
    tools = [name for name in node.missing if name in node.tools]
    members = [name for name in node.missing if name not in node.tools]
    lines = []
    if members:
        lines.append(f"no agent {', '.join(members)}: start it with `cadre agent FILE`")
    if tools:
        lines.append(f"no tool {', '.join(tools)}: start it with `cadre tools FILE`")
    return lines
