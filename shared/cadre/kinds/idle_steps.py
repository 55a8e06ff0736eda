"""Steps in which nothing was done: no call in them could be made, and no code was run."""

from cadre.journal.run import Run
from cadre.journal.steps import ActionStep, PlanningStep


def why_idle(run: Run) -> str:
    """What was wrong in the run's last steps, if they did nothing; "" where the last one did something."""
    problems: list[str] = []
    for step in reversed(run.steps):
        if isinstance(step, PlanningStep):
            continue
        problem = _problem(step) if isinstance(step, ActionStep) else ""
        if not problem:
            break
        problems.append(problem)
    if not problems:
        return ""
    steps = "step" if len(problems) == 1 else f"{len(problems)} steps"
    return f"In the last {steps} nothing could be done: {problems[0]}"


def _problem(step: ActionStep) -> str:
    """Why nothing was done in the step; "" when something was."""
    if step.own is not None or any(call.kind != "refused" for call in step.calls):
        return ""
    errors = [call.error for call in step.calls if call.error is not None]
    errors += [step.error] if step.error is not None else []
    return errors[0].message if errors else ""
