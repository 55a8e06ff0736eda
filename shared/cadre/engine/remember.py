"""What a run leaves to the memory service: its finished steps, or its task and answer, as its spec says.

Nobody waits for it: the calls are owed like any other and sent again after a crash, and their ids are derived, so that
the service stores each text once.
"""

from cadre.engine.context.observation import clip, observation_of
from cadre.engine.kind import account_of
from cadre.engine.recall import origin_of
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep
from cadre.protocol.memory import REMEMBER
from cadre.protocol.messages import ToolCall
from cadre.spec.agent import AgentSpec

_OBSERVED = 4_000
"""Characters of each observation that are kept for later runs."""


def to_remember(run: Run, since: int) -> list[ToolCall]:
    """What the entries from `since` on have finished."""
    spec = run.spec
    if spec is None or spec.memory.remember == "nothing":
        return []
    calls = []
    if spec.memory.remember == "steps":
        calls = [
            _call(run, spec, step, _text_of(step)) for step in _finished(run, max(1, since)) if _text_of(step)
        ]
    result = run.result
    if result is not None and result.state == "success" and result.since >= since and run.task is not None:
        answer = f"Task: {run.task.task}\nAnswer: {observation_of(result.output)}"
        calls.append(_call(run, spec, None, answer))
    return calls


def _finished(run: Run, since: int) -> list[ActionStep]:
    """The latest steps first looked at: what earlier entries have finished is none of theirs."""
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
