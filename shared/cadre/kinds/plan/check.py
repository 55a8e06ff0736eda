"""What is wrong with a section `plan` is said when its file is read."""

from typing import Any

from cadre.errors import SpecError
from cadre.kinds.plan.section import EXECUTE, EXECUTING_KINDS, KIND, PlanSpec, ResultCall, plan_of
from cadre.kinds.plan.steps import PlanError, numbered
from cadre.spec.expressions import check_template
from cadre.spec.names import check_bounds


def check(spec: Any) -> None:
    """Raises SpecError for a section that cannot hold."""
    section, where = plan_of(spec), f"agent {spec.name}: plan"
    if section.direct or (spec.kind != KIND and section == PlanSpec()):
        return
    if spec.kind != KIND:
        _check_executing(spec, where)
    elif section.execute:
        raise SpecError(f"{where}.execute is what agents of kind {KIND} do anyway: leave it out")
    bounds = [("plan.replans", section.replans, 0), ("plan.tries", section.tries, 1)]
    check_bounds(spec.name, [*bounds, ("plan.most", section.most, 1)])
    for key in ("system", "user"):
        _check_template(f"{where}.prompt.{key}", getattr(section.prompt, key))
    hook = section.result
    _check_template(f"{where}.result", hook.arguments if isinstance(hook, ResultCall) else hook)
    if isinstance(hook, ResultCall) and hook.tool not in spec.tools:
        raise SpecError(f"{where}.result: {hook.tool!r} is not in the agent's tools")
    try:
        steps = numbered(section.steps, section.most)
    except PlanError as error:
        raise SpecError(f"{where}.steps: {error}") from error
    if any(not isinstance(member, str) for member in spec.team):
        return  # it is not known here whom a selector finds
    known = {EXECUTE, *spec.tools, *spec.team}
    for step in steps:
        if step.action not in known:
            raise SpecError(
                f"{where}.steps: step {step.step}: there is no action {step.action!r}; write one of"
                f" {', '.join(sorted(known))}"
            )


def _check_executing(spec: Any, where: str) -> None:
    """What an agent of another kind says about plans."""
    section = plan_of(spec)
    if spec.kind not in EXECUTING_KINDS:
        raise SpecError(f"{where} is for agents of kind {KIND}: leave it out, or write kind: {KIND}")
    if not section.execute:
        raise SpecError(f"{where}: write execute: true to have its steps carried out, or kind: {KIND}")
    if spec.planning_interval is not None:
        raise SpecError(f"{where}.execute takes the place of planning_interval: leave one of them out")
    if section.role or section.objective or section.prompt.system:
        raise SpecError(
            f"{where}: role, objective and prompt.system are for agents of kind {KIND}: write `instructions`"
        )


def _check_template(where: str, value: Any) -> None:
    try:
        check_template(value)
    except ValueError as error:
        raise SpecError(f"{where}: {error}") from error
