"""The section `plan` of an agent's file: steps that are given, how others are made, and what becomes of the result."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cadre.spec.expressions import check_template
from cadre.spec.kinds import Section

KIND = "plan"
"""The name of the kind, and of its section."""

EXECUTE = "execute"
"""The action of a step that the agent itself carries out, in a separate run."""

EXECUTING_KINDS = ("tool_calling", "code")
"""Kinds whose agents may carry their plans out as steps: `execute`."""

VALUES = ("task", "objective", "role", "inputs")
"""The values that a step's templates may read besides the results `step_1`, `step_2` … of the steps that it needs."""


PLAN_TEMPLATES = {
    "plan.frame": (
        "tools managed_agents custom_instructions",
        "prompt role objective output_schema",
    ),
    "plan.make": ("objective recalled messages complaint", "most"),
    "plan.replan": ("objective steps messages complaint", "most"),
    "plan.step": ("task", "objective steps"),
    "plan.conclude": ("objective steps messages complaint", "output_schema"),
}
"""Templates of the questions about a plan, and of the task of one of its steps, with the variables that each must show
and may use."""
PLAN_LISTS = ("steps", "recalled")


class PlanStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a plan, as it is written down."""

    step: int = 0
    """Its number, from 1; 0 is its place in the plan. Its result is read as `step_1`, `step_2` …"""
    action: str = EXECUTE
    """`execute`, or the name of a tool or a team member."""
    task: str = ""
    """A template for the work to do."""
    args: dict[str, Any] = {}
    """Templates: the arguments of the tool, or the additional ones of the member."""
    details: str = ""
    """A template: what else to mind."""
    needs: list[int] | None = None
    """The steps that must be done before. A plan in which no step says so is done in its order."""


class PlanPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Templates over the plan's values, for the steps that the agent carries out itself."""

    system: str = ""
    """In place of `role` and `objective`."""
    user: str = ""
    """In place of the step's `task` and `details`, which it may read by these names."""


class ResultCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that makes the answer of the result."""

    tool: str
    arguments: dict[str, Any] = {}
    """Templates over `result` and the results of the steps; {} gives the result as `result`."""


class WholePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The plan that a run is one step of, as its model reads it."""

    objective: str = ""
    """The task that the plan serves; empty where the step is that task itself."""
    steps: list[str] = []
    """One line for each step; [] where there is one step only."""


class PlanSpec(Section, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The settings of an agent of kind `plan`, or of one of another kind that carries out plans."""

    execute: bool = False
    """True if an agent of kind `tool_calling` or `code` works by a plan, whose steps it carries out in its own way."""
    role: str = ""
    objective: str = ""
    prompt: PlanPrompt = PlanPrompt()
    steps: list[str | PlanStep] = []
    """The plan, where it is always the same; a text is a step that the agent carries out itself."""
    planning: bool = True
    """True if a model makes the plan where none is given; otherwise it is one step that does the task."""
    approve_plan: bool = False
    """True if a person must agree to each plan before anything of it is done."""
    replans: int = 2
    """The number of times that a plan may be made again after a step has failed."""
    tries: int = 3
    """The number of times that the model is asked for a plan, or an answer, when it gives one that cannot be taken."""
    most: int = 30
    """The most steps that a plan may have."""
    conclude: bool = False
    """True if the model writes the answer from all results; otherwise it is the last step's."""
    result: str | ResultCall | None = None
    """The template over `result` and the steps' results, or the tool, that turns the result into the answer."""
    direct: WholePlan | None = None
    """Set for a run that is one step of another run's plan: it does its task and makes no plan. Not for files."""


def plan_of(spec: Any) -> PlanSpec:
    """The section of an agent's spec."""
    return spec.section(PlanSpec) or PlanSpec()


def decided_by(spec: Any) -> str:
    """Return the kind that decides the runs of an agent: that of plans for those that carry one out, and for each of
    its steps the kind that acts."""
    section, kind = plan_of(spec), str(spec.kind)
    if section.direct is not None:
        return kind if kind in EXECUTING_KINDS else EXECUTING_KINDS[0]
    return KIND if section.execute else kind


def task_prompt(spec: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return the template by which the model of a step's run reads its task, with its values but for the task."""
    whole = plan_of(spec).direct
    return ("plan.step", msgspec.structs.asdict(whole)) if whole is not None else None


def prompt_terms(spec: Any) -> dict[str, Any]:
    """Return who the agent is; its own prompt wins, once its templates have their values."""
    section = plan_of(spec)
    is_filled = section.direct is not None or not check_template(section.prompt.system)
    return {
        "calls": spec.model.calls,
        "prompt": section.prompt.system if is_filled else "",
        "role": section.role,
        "objective": section.objective,
    }
