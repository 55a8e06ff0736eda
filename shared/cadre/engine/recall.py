"""What a run knows from earlier work: the memory service is asked once, before the first model call.

It is a tool call like any other, so a kill on either side loses nothing, and the journal keeps what came of it: a
replay sees the same memories, whatever the service would say by then.
"""

import msgspec

from cadre.engine.context.context_budget import room
from cadre.engine.context.tokens import fit
from cadre.engine.draft import Draft
from cadre.journal import events as ev
from cadre.journal.run import Recalling, Run
from cadre.journal.steps import Memory
from cadre.protocol.memory import RECALL
from cadre.protocol.messages import ErrorInfo, Origin, ToolCall, ToolResult
from cadre.spec.agent import AgentSpec


class _Found(msgspec.Struct):
    """What the tool `recall` answers, as far as a run reads it."""

    hits: list[Memory]
    degraded: bool = False
    why: str = ""


def on_memories(draft: Draft, result: ToolResult) -> None:
    """Begin the run: the memory service has answered."""
    recalled = ev.MemoryRecalled(
        call=result.call,
        error=result.error,
        executor=result.executor,
        seconds=result.seconds,
        started_at=result.started_at or None,
    )
    if result.error is None:
        try:
            found = msgspec.convert(result.output, type=_Found)
        except msgspec.ValidationError as error:
            wrong = ErrorInfo("tool-failed", f"recall answered something else: {error}")
            recalled = msgspec.structs.replace(recalled, error=wrong)
        else:
            recalled = msgspec.structs.replace(
                recalled,
                memories=_with_room(draft.run, found.hits),
                degraded=found.why if found.degraded else "",
            )
    draft.emit(recalled)
    draft.kind.begin(draft)


def on_no_memories(draft: Draft, asked: Recalling) -> None:
    """Begin the run without memories: they help, and are no condition."""
    seconds = round(asked.due - asked.at, 3)
    error = ErrorInfo(
        "interrupted", f"the memory service did not answer within {seconds:g} s: is `cadre memory` running?"
    )
    draft.emit(ev.MemoryRecalled(call=asked.call, error=error))
    draft.kind.begin(draft)


def _with_room(run: Run, found: list[Memory]) -> list[Memory]:
    """An eighth of the context at most, shared evenly."""
    share = room(run.spec) // 8 // max(1, len(found)) if run.spec is not None else 0
    return [msgspec.structs.replace(memory, text=fit(memory.text, share)) for memory in found]


def origin_of(run: Run, spec: AgentSpec) -> Origin:
    """For whom the run asks the memory service."""
    given = run.task.origin if run.task is not None and run.task.origin is not None else Origin()
    return Origin(
        user=given.user,
        session=given.session,
        root=given.root,
        team=spec.memory.team or None,
        reads=list(spec.memory.reads),
        writes=spec.memory.scope,
    )


def question(run: Run, asked: Recalling, spec: AgentSpec) -> ToolCall:
    """The call that asks the memory service."""
    return ToolCall(
        id=asked.call,
        tree=run.tree,
        run=run.id,
        at=asked.at,
        agent=run.agent,
        tool=RECALL,
        arguments={"query": asked.query, "k": asked.count},
        deadline=min(due for due in (asked.due, run.deadline) if due is not None),
        origin=origin_of(run, spec),
        trace=run.task.trace if run.task is not None else None,
    )
