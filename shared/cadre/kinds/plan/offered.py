"""Plans of a model, and of anybody else, against what the run may call."""

from collections.abc import Iterable

from cadre.engine.answers.json_text import ReadingError, read_array
from cadre.engine.calls.call_check import CallNotAllowed, as_written, check_arguments, input_schema
from cadre.engine.calls.call_schema import Schema
from cadre.journal.run import Run
from cadre.kinds.plan.section import EXECUTE, PlanStep
from cadre.kinds.plan.steps import PlanError, as_steps
from cadre.spec.expressions import check_template
from cadre.spec.member_call import ADDITIONAL, TASK


def read_plan(content: str) -> list[str | PlanStep]:
    """The steps that a model has written. Raises ReadingError."""
    try:
        return as_steps(read_array(content, "steps"))
    except PlanError as error:
        raise ReadingError(str(error)) from error


def strange_steps(run: Run, steps: Iterable[PlanStep]) -> list[PlanStep]:
    """Return the steps whose actions are neither there nor away."""
    known = {EXECUTE, *run.tools, *run.members, *run.missing}
    return [step for step in steps if step.action not in known]


def check_actions(run: Run, steps: Iterable[PlanStep]) -> None:
    """Raises PlanError for a step that nobody can do, or whose arguments can be seen to be wrong."""
    known = [EXECUTE, *run.tools, *run.members]
    for step in steps:
        if strange_steps(run, [step]):
            raise PlanError(
                f"Step {step.step}: there is no action {step.action!r}; use one of {', '.join(known)}"
            )
        _check_arguments(run, step)
        # Of what is not there at the moment nobody knows whether it is a tool, which needs none.
        if step.action not in {*run.tools, *run.missing} and not step.task.strip():
            raise PlanError(f"Step {step.step} says no task")


def _check_arguments(run: Run, step: PlanStep) -> None:
    """Raises PlanError where what the action takes is known, and no template may become anything."""
    schema = input_schema(run, step.action) if step.action != EXECUTE else None
    if schema is None or check_template(step.args):
        return
    arguments = step.args
    if step.action not in run.tools:
        arguments = as_written(run, step.action, {TASK: step.task, ADDITIONAL: step.args})
    try:
        check_arguments(step.action, schema, arguments)
    except CallNotAllowed as error:
        raise PlanError(f"Step {step.step}: {error}") from error


def plan_schema(run: Run) -> Schema:
    """JSON Schema of a plan that the run's model writes."""
    number = {"type": "integer", "minimum": 1}
    step = {
        "step": number,
        "action": {"type": "string", "enum": [EXECUTE, *run.tools, *run.members]},
        "task": {"type": "string"},
        "args": {"type": "object"},
        "details": {"type": "string"},
        "needs": {"type": "array", "items": number},
    }
    item = {"type": "object", "properties": step, "required": ["step", "action", "task", "needs"]}
    return {
        "type": "object",
        "properties": {"steps": {"type": "array", "items": item}},
        "required": ["steps"],
    }
