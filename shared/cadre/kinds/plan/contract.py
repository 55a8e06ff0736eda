"""What the steps of a given plan expect of tools, members and each other."""

from collections.abc import Iterator, Mapping

from cadre.engine.contract import delegation_problems
from cadre.kinds.plan.section import PlanStep, ResultCall, plan_of
from cadre.kinds.plan.steps import numbered
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import (
    ContractProblem,
    TeamReach,
    answer_type,
    argument_problems,
    callee_of,
    inputs_type,
    missing_arguments,
    read_problems,
)
from cadre.spec.expression_types import Typed, shape_of
from cadre.spec.expressions import templates_in


def problems_of(spec: AgentSpec, reach: TeamReach) -> Iterator[ContractProblem]:
    """What the steps and the result expect and what does not hold; a plan that a model makes is checked then."""
    section = plan_of(spec)
    steps = numbered(section.steps, section.most)
    names: dict[str, Typed] = {f"step_{step.step}": _result_of(step, reach) for step in steps}
    names["inputs"] = inputs_type(spec)
    for index, step in enumerate(steps):
        path = f"spec.plan.steps[{index}]"
        for key, text in _call_problems(step, reach):
            yield ContractProblem(agent=spec.name, path=f"{path}.{key}", text=text)
        for key, written in (("task", step.task), ("details", step.details), ("args", step.args)):
            for template in templates_in(written):
                yield from read_problems(spec, f"{path}.{key}", template, names)
    hook = section.result
    if steps and hook is not None and not section.conclude:
        known: Mapping[str, Typed] = {**names, "result": names[f"step_{steps[-1].step}"]}
        for template in templates_in(hook.arguments if isinstance(hook, ResultCall) else hook):
            yield from read_problems(spec, "spec.plan.result", template, known)


def _result_of(step: PlanStep, reach: TeamReach) -> Typed:
    if step.action in reach.tools:
        return shape_of(reach.tools[step.action].output_schema, f"the output_schema of tool {step.action}")
    return answer_type(reach.agents[step.action]) if step.action in reach.agents else None


def _call_problems(step: PlanStep, reach: TeamReach) -> Iterator[tuple[str, str]]:
    """Keys of a step, and why it cannot be called so."""
    if step.action in reach.tools:
        callee = callee_of(reach.tools[step.action])
        for name, text in argument_problems(callee, step.args):
            yield f"args.{name}", text
        if lacks := missing_arguments(callee, step.args):
            yield "args", f"{callee.who} needs {', '.join(lacks)}: add it"
    elif step.action in reach.agents:
        yield from delegation_problems(reach.agents[step.action], step.args, "args")
