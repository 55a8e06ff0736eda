"""Declare the kind `plan` and its records: plans, and what became of each of their steps."""

from functools import partial
from typing import Any, Literal

import msgspec

from cadre.engine.context.text_size import observation_of
from cadre.errors import SpecError
from cadre.journal.parts import Description, JournalEvent, KindState, KindStep, Mark, PieceOfWork
from cadre.kinds.plan import section
from cadre.kinds.plan.section import EXECUTE, EXECUTING_KINDS, KIND, PlanSpec, PlanStep, ResultCall, plan_of
from cadre.kinds.plan.steps import PlanError, numbered
from cadre.kinds.tool_calling.records import STEPWISE
from cadre.protocol.messages import ErrorInfo
from cadre.spec.expressions import check_template
from cadre.spec.kinds import Facts, KindDeclaration, PromptFile
from cadre.spec.names import check_bounds


def check(spec: Any) -> None:
    """Raise SpecError for a section that cannot hold."""
    section = plan_of(spec)
    if section.direct is not None or (spec.kind != KIND and section == PlanSpec()):
        return
    if spec.kind != KIND:
        _check_executing(spec)
    elif section.execute:
        raise SpecError(f"is what agents of kind {KIND} do anyway: leave it out", key="plan.execute", agent=spec.name)
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
        return  # the agents that a selector finds are not known here
    known = {EXECUTE, *spec.tools, *spec.team}
    for step in steps:
        if step.action not in known:
            raise SpecError(
                f"step {step.step}: there is no action {step.action!r}; write one of {', '.join(sorted(known))}",
                key="plan.steps",
                agent=spec.name,
            )


def _check_executing(spec: Any) -> None:
    """Raise SpecError if an agent of another kind has settings for plans that it cannot use."""
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


PlanOrigin = Literal["given", "model", "basic", "replan", "edit"]

ItemState = Literal["pending", "running", "done", "failed", "replaced"]
"""`replaced`: it has failed, and another plan goes on without it."""

PLAN_PURPOSES = {
    "make_plan": "making a plan",
    "replan": "replanning",
    "conclude": "writing the answer",
}


def work_id(step: int) -> str:
    """Return the id of a step's work."""
    return f"plan-{step}"


def _text_of(step: PlanStep) -> str:
    text = step.task or (observation_of(step.args) if step.args else "")
    needs = f" (needs {', '.join(map(str, step.needs))})" if step.needs else ""
    return text + needs


class PlanMade(JournalEvent, frozen=True, tag="plan.made"):
    """A plan was made for what is to be done from now on; what is done or under way remains."""

    step: int
    origin: PlanOrigin
    steps: list[PlanStep]
    reason: str = ""
    """The reason why it is the basic plan of one step, or which steps of the model's plan were left out."""

    def describe(self) -> Description:
        steps = "; ".join(f"{one.step} {one.action}" for one in self.steps)
        why = f" ({self.reason})" if self.reason else ""
        work = [
            PieceOfWork(work_id(one.step), f"{one.step} {one.action}", "queued", _text_of(one), replaces=n == 0)
            for n, one in enumerate(self.steps)
        ]
        told = (f"{one.step} {one.action}: {one.task or observation_of(one.args)}" for one in self.steps)
        marks = [Mark("make_plan", "plan", self.step, "; ".join(told))]
        return Description("", [f"plan ({self.origin}): {steps}{why}"], work, marks)


class PlanRefused(JournalEvent, frozen=True, tag="plan.refused"):
    """A plan, or an answer, cannot be taken; it is asked for again, or given up."""

    step: int
    purpose: str
    reason: str
    given_up: bool = False

    def describe(self) -> Description:
        return Description("", [f"{self.purpose}: not taken: {self.reason}"])


class PlanStepStarted(JournalEvent, frozen=True, tag="plan.step_started"):
    """A step of the plan begins: its call follows, in the order of these events."""

    step: int

    def describe(self) -> Description:
        return Description("", [f"begins step {self.step} of the plan"], [PieceOfWork(work_id(self.step))])


class PlanStepFinished(JournalEvent, frozen=True, tag="plan.step_finished"):
    """A step of the plan is over."""

    step: int
    error: ErrorInfo | None = None

    def describe(self) -> Description:
        state: Literal["ok", "failed"] = "failed" if self.error is not None else "ok"
        how = f"has failed: {self.error.message}" if self.error is not None else "is done"
        work = PieceOfWork(work_id(self.step), state=state, error=self.error)
        return Description("", [f"step {self.step} of the plan {how}"], [work])


class PlanDone(JournalEvent, frozen=True, tag="plan.done"):
    """The plan's result, before the agent's `result` makes the answer of it."""

    result: Any

    def describe(self) -> Description:
        return Description("")


class PlanItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of the plan with what became of it."""

    plan: PlanStep
    state: ItemState = "pending"
    call: str = ""
    result: Any = None
    error: ErrorInfo | None = None

    @property
    def step(self) -> int:
        return self.plan.step

    @property
    def needs(self) -> list[int]:
        return self.plan.needs or []


class PlanState(KindState, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The plan of a run. Its containers are replaced, never changed."""

    items: list[PlanItem] = []
    version: int = 0
    """Counts plans and edits; what becomes of the steps does not count."""
    stage: str = ""
    """Name of the step in work, `approve` while a person is asked about the plan."""
    replans: int = 0
    tries: int = 0
    """Answers in a row that could not be taken."""
    complaint: str = ""
    """The problem with the latest of them."""
    opening: list[int] = []
    """Steps whose calls are about to follow."""
    result: Any = None


class PlanNote(KindStep, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The subject of a step of the run, and the plan at its end."""

    stage: str
    items: list[PlanItem] = []
    version: int = 0


def _facts(spec: Any) -> Facts:
    plan = section.plan_of(spec)
    own = not plan.steps or plan.conclude or plan.replans > 0
    return Facts(
        section.decided_by(spec),
        asks_model=own or any(isinstance(s, str) or s.action == section.EXECUTE for s in plan.steps),
        capabilities=frozenset({"tools"} if spec.model.calls == "native" else ()),
        terms=partial(section.prompt_terms, spec),
        task=section.task_prompt(spec),
        plans_tools=True,
    )


DECLARATION = KindDeclaration(
    name=section.KIND,
    behavior={1: "cadre.kinds.plan.kind:PLAN"},
    purposes={**STEPWISE, **PLAN_PURPOSES},
    prompts={
        section.KIND: PromptFile(
            must="custom_instructions prompt",
            may="role objective tools managed_agents output_schema calls",
            templates=section.PLAN_TEMPLATES,
            lists=section.PLAN_LISTS,
            like="tool_calling",
            has_short=False,
        )
    },
    records=(
        *(PlanMade, PlanRefused, PlanStepStarted, PlanStepFinished, PlanDone),
        *(PlanState, PlanNote, section.PlanSpec),
    ),
    facts=_facts,
    check=check,
)
