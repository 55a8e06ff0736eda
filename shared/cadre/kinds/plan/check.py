"""What is wrong with a section `plan` is said when its file is read."""

from typing import Any

from cadre.errors import SpecError
from cadre.kinds.plan.section import EXECUTE, EXECUTING_KINDS, KIND, PlanSpec, ResultCall, plan_of
from cadre.kinds.plan.steps import PlanError, numbered
from cadre.spec.expressions import check_template
from cadre.spec.names import check_bounds


def check(spec: Any) -> None:
    """Raises SpecError for a section that cannot hold."""
    section = plan_of(spec)
    if section.direct is not None or (spec.kind != KIND and section == PlanSpec()):
        return
    if spec.kind != KIND:
        _check_executing(spec)
    elif section.execute:
        raise SpecError(
            f"is what agents of kind {KIND} do anyway: leave it out", key="plan.execute", agent=spec.name
        )
    bounds = [("plan.replans", section.replans, 0), ("plan.tries", section.tries, 1)]
    check_bounds(spec.name, [*bounds, ("plan.most", section.most, 1)])
    for key in ("system", "user"):
        _check_template(spec.name, f"plan.prompt.{key}", getattr(section.prompt, key))
    hook = section.result
    _check_template(spec.name, "plan.result", hook.arguments if isinstance(hook, ResultCall) else hook)
    if isinstance(hook, ResultCall) and hook.tool not in spec.tools:
        raise SpecError(f"{hook.tool!r} is not in the agent's tools", key="plan.result", agent=spec.name)
    try:
        steps = numbered(section.steps, section.most)
    except PlanError as error:
        raise SpecError(str(error), key="plan.steps", agent=spec.name) from error
    if any(not isinstance(member, str) for member in spec.team):
        return  # it is not known here whom a selector finds
    known = {EXECUTE, *spec.tools, *spec.team}
    for step in steps:
        if step.action not in known:
            raise SpecError(
                f"step {step.step}: there is no action {step.action!r}; write one of"
                f" {', '.join(sorted(known))}",
                key="plan.steps",
                agent=spec.name,
            )


def _check_executing(spec: Any) -> None:
    """What an agent of another kind says about plans."""
    section = plan_of(spec)
    if spec.kind not in EXECUTING_KINDS:
        raise SpecError(
            f"is for agents of kind {KIND}: leave it out, or write kind: {KIND}", key="plan", agent=spec.name
        )
    if not section.execute:
        raise SpecError(
            f"write execute: true to have its steps carried out, or kind: {KIND}", key="plan", agent=spec.name
        )
    if spec.planning_interval is not None:
        raise SpecError(
            "takes the place of planning_interval: leave one of them out", key="plan.execute", agent=spec.name
        )
    if section.role or section.objective or section.prompt.system:
        raise SpecError(
            f"role, objective and prompt.system are for agents of kind {KIND}: write `instructions`",
            key="plan",
            agent=spec.name,
        )


def _check_template(agent: str, key: str, value: Any) -> None:
    try:
        check_template(value)
    except ValueError as error:
        raise SpecError(str(error), key=key, agent=agent) from error
