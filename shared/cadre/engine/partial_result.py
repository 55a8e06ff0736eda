"""What a run has found until it was stopped: its plan and observations, told without asking a model again."""

from __future__ import annotations

from cadre.engine.context.observation import clip, observation_of
from cadre.journal.run import ActionStep, PlanningStep, Run


def findings_of(run: Run) -> str | None:
    """Step by step, each call with its observation; None when there is nothing to tell."""
    steps = [*run.memory, *([run.current] if run.current is not None else [])]
    told: list[str] = []
    for step in steps:
        match step:
            case PlanningStep():
                told.append(f"Plan:\n{step.plan}")
            case ActionStep():
                told += [f"{call.name}: {call.observation}" for call in step.asked if call.observation]
                told += [step.observation] if step.observation else []
            case _:
                pass
    if run.proposal is not None:
        told.append(f"Answer that was still being checked:\n{observation_of(run.proposal.answer)}")
    if not told:
        return None
    limit = run.spec.limits.observation_chars if run.spec else None
    return clip("Stopped before it was done. Found until then:\n" + "\n".join(told), limit)
