"""Records as services send them, with derived ids and defaults for what a test does not care about."""

from typing import Any

from cadre.protocol.messages import (
    Cancel,
    ErrorInfo,
    ReplyTo,
    Report,
    RunState,
    Task,
    TimerFired,
    ToolResult,
)
from cadre.protocol.topology import report_id, result_id, task_id, timer_id, tree_of


def task(
    text: str = "Do it.", run: str = "r1", parent: str | None = None, *, agent: str = "agent", **fields: Any
) -> Task:
    """The task that begins a run; with `parent` it comes from that run."""
    reply_to = ReplyTo(agent="chief", run=parent) if parent else None
    return Task(
        id=task_id(run),
        tree=tree_of(run),
        run=run,
        at=1.0,
        agent=agent,
        task=text,
        reply_to=reply_to,
        **fields,
    )


def result(
    id: str, output: Any = None, error: ErrorInfo | None = None, *, tool: str = "tool", **fields: Any
) -> ToolResult:
    """The result of the call with this id."""
    return ToolResult(
        id=result_id(id),
        **_to_caller(id),
        call=id,
        tool=tool,
        output=output,
        error=error,
        **fields,
    )


def report(
    child: str, text: str = "", state: RunState = "success", *, agent: str = "member", **fields: Any
) -> Report:
    """The report of the team member's run with this id, which is the id of its call."""
    return Report(
        id=report_id(child),
        **_to_caller(child),
        child=child,
        agent=agent,
        state=state,
        text=text,
        output=text or None,
        **fields,
    )


def _to_caller(call: str) -> dict[str, Any]:
    """The fields of a record that answers a call, whose id is `<run>_<step>_<index>`."""
    return {"tree": tree_of(call), "run": call.rpartition("_")[0].rpartition("_")[0], "at": 2.0}


def cancel(id: str = "c1", reason: str = "enough", run: str = "r1", *, now: bool = False) -> Cancel:
    """A request to cancel the run."""
    return Cancel(id=id, tree=tree_of(run), run=run, at=2.0, reason=reason, sender="user", now=now)


def timer(name: str, run: str = "r1") -> TimerFired:
    """The timer of the run with this name goes off."""
    return TimerFired(id=timer_id(run, name), tree=tree_of(run), run=run, at=2.0, name=name)
