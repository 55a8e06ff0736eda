"""Build a run's requests to the memory service: recall before its first model call, and storage of its results.

Each is a tool call like any other, so a kill on either side loses nothing, and the journal keeps the outcome: a replay
sees the same memories even if the service would answer differently by then.
"""

import msgspec

from cadre.engine.context.context_budget import room
from cadre.engine.context.text_size import clip, fit, observation_of
from cadre.engine.draft import Draft
from cadre.engine.kind import account_of
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Memory, Recalling, Run
from cadre.protocol.memory import RECALL, REMEMBER
from cadre.protocol.messages import ErrorInfo, Origin, ToolCall, ToolResult
from cadre.spec.agent import AgentSpec


class _Found(msgspec.Struct):
    """The answer of the tool `recall`, as far as a run reads it."""

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
    """Return the origin under which the run asks the memory service."""
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


_OBSERVED = 4_000
"""Characters of each observation that are kept for later runs."""


def to_remember(run: Run, since: int) -> list[ToolCall]:
    """Return what the entries from `since` on have finished, for an agent that has it remembered."""
    spec = run.spec
    assert spec is not None
    calls = []
    if spec.memory.remember == "steps":
        calls = [_call(run, spec, step, _text_of(step)) for step in _finished(run, max(1, since)) if _text_of(step)]
    result = run.result
    if result is not None and result.state == "success" and result.since >= since and run.task is not None:
        answer = f"Task: {run.task.task}\nAnswer: {observation_of(result.output)}"
        calls.append(_call(run, spec, None, answer))
    return calls


def _finished(run: Run, since: int) -> list[ActionStep]:
    """Return the steps since entry `since`, in order: earlier entries have accounted for the others."""
    found: list[ActionStep] = []
    for step in reversed(run.steps):
        if isinstance(step, ActionStep):
            if step.entry < since:
                break
            if not step.interrupted:  # what its calls came to may not be known yet
                found.insert(0, step)
    return found


def _call(run: Run, spec: AgentSpec, step: ActionStep | None, text: str) -> ToolCall:
    number = step.number if step is not None else run.step
    kind = "step" if step is not None else "answer"
    at = step.ended_at if step is not None else run.result.at if run.result is not None else 0.0
    return ToolCall(
        id=f"{run.id}_{number}_{kind}",
        tree=run.tree,
        run=run.id,
        at=at,
        agent=run.agent,
        tool=REMEMBER,
        arguments={"text": text, "kind": kind, "step": number},
        origin=origin_of(run, spec),
        reply=False,
        trace=run.task.trace if run.task is not None else None,
    )


def _text_of(step: ActionStep) -> str:
    """The step in plain text: what was thought, done and seen. Empty for one that held only the answer."""
    account = account_of(step)
    calls = []
    if account is not None:
        came = clip(account.seen or "", _OBSERVED)
        if not account.with_calls:
            return "\n".join([f"{account.name}:\n{account.text}", came])
        calls = [came] if came else []
    for call in step.calls:
        if call.kind == "question":
            continue
        seen = call.observation if call.error is None else f"failed: {call.error.message}"
        calls.append(f"{call.name}({observation_of(call.arguments)}): {clip(seen or '', _OBSERVED)}")
    return "\n".join([step.content, *calls] if step.content and calls else calls)
