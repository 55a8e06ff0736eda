"""What a run has found until it was stopped: its plan and observations, found without asking a model again."""

from cadre.engine.context.observation import clip, observation_of
from cadre.engine.kind import account_of
from cadre.journal.run import Run
from cadre.journal.steps import ActionStep, CallState, PlanningStep


def partial_result_of(run: Run) -> str | None:
    """Step by step, each call with its observation; None when there is nothing to tell."""
    steps = [*run.steps, *([run.current] if run.current is not None else [])]
    found: list[str] = []
    for step in steps:
        match step:
            case PlanningStep():
                found.append(f"Plan:\n{step.plan}")
            case ActionStep():
                found += [f"{call.name}: {seen}" for call in step.asked if (seen := _seen(call))]
                account = account_of(step)
                found += [account.seen] if account is not None and account.seen else []
            case _:
                pass
    if run.proposal is not None:
        found.append(f"Answer that was still being checked:\n{observation_of(run.proposal.answer)}")
    if not found:
        return None
    limit = run.spec.limits.observation_chars if run.spec else None
    return clip("Stopped before it was done. Found until then:\n" + "\n".join(found), limit)


def _seen(call: CallState) -> str:
    """Return the call's observation, or that its outcome is unknown; "" for a call that failed or was not made."""
    if call.error is not None and call.error.code == "interrupted":
        return call.error.message
    if call.is_open and call.opened:
        return "no answer by then; it may or may not have taken effect"
    return call.observation or ""
