"""The section `workflow` of an agent's file: steps by name, and where each leads."""

from typing import Any

import msgspec

from cadre.spec.kinds import Section

KIND = "workflow"
"""The name of the kind, and of its section."""


class ToolAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Call a tool."""

    name: str
    arguments: dict[str, Any] = {}
    """Templates over earlier results."""
    instruction: str = ""
    """A template: from it and the tool's schema the model makes the arguments that `arguments` lacks."""


class AskAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask the model once."""

    prompt: str
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; without one the answer is text."""


class AgentAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Delegate to a member of the team."""

    name: str
    task: str
    inputs: dict[str, Any] = {}


class EachAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Do a step, and what follows it, for every item of a list, each in a separate run."""

    items: str | list[Any]
    step: str
    parallel: int = 0
    """The number of items at once; 0 is as many as `limits.parallel`."""
    need: int | None = None
    """The number that must succeed; None is all."""


class ParallelAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Do several steps, and what follows each, in parallel, each in a separate run."""

    branches: dict[str, str]
    """Step by the branch's name."""
    need: int | None = None
    """The number that must succeed: the others are dropped then; None is all."""


class ApproveAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ask a person."""

    question: str
    seconds: float | str | None = None
    """The length of the wait; None is for ever."""
    yes: str = ""
    no: str = ""
    expired: str = ""


class WaitAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Wait for a length of time, until a point in time, or for a signal from outside."""

    seconds: float | str | None = None
    """Seconds, or a text such as `2h` or `30d`."""
    until: float | str | None = None
    """Unix seconds, or a text such as `2026-03-29T08:00+02:00`."""
    signal: str = ""
    """Name of the signal; the time is how long it is waited for then."""
    expired: str = ""
    """The step to go to when the signal has not come in time."""


class RouteCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step to go to if a condition holds."""

    condition: str = msgspec.field(name="if")
    next: str


class ChooseAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Go where the first condition that holds leads."""

    cases: list[RouteCase]
    default: str = ""


class EndAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """End the workflow."""

    output: Any = None
    """A template: the run's answer."""
    error: str = ""
    """A template: why the workflow has failed."""


Action = (
    ToolAction
    | AskAction
    | AgentAction
    | EachAction
    | ParallelAction
    | ApproveAction
    | WaitAction
    | ChooseAction
    | EndAction
)


class RouteChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model chooses where to go."""

    instruction: str
    options: dict[str, str]
    """Step by the label that the model answers with."""
    default: str = ""
    """The step to go to if its answer matches no case."""


class StepAttempts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The number of attempts at a step."""

    most: int = 1
    on: list[str] = []
    """The errors after which it is tried again, by code, by type or by words of their text; [] is any."""
    pause: float | str = 0.0
    """The time to wait before the second attempt; twice as long before each further one."""


class WorkflowStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: what it does, by exactly one of the first nine keys, and where it leads."""

    tool: str | ToolAction | None = None
    ask: str | AskAction | None = None
    agent: AgentAction | None = None
    each: EachAction | None = None
    parallel: ParallelAction | None = None
    approve: str | ApproveAction | None = None
    wait: float | str | WaitAction | None = None
    choose: list[RouteCase] | ChooseAction | None = None
    end: str | EndAction | None = None
    next: str = ""
    """The step that follows; "" ends the workflow with this step's result."""
    route: RouteChoice | None = None
    when: list[RouteCase] = []
    """The steps to go to if a condition holds; `next` is for when none does."""
    attempts: int | StepAttempts = 1
    on_error: str = ""
    """The step that follows when all attempts have failed; "" ends the workflow in error."""
    undo: str = ""
    """The step that makes up for this one when the workflow ends in error or is cancelled later."""
    visits: int = 100
    """The number of times that the step may be entered in one run."""


ACTIONS = ("tool", "ask", "agent", "each", "parallel", "approve", "wait", "choose", "end")
"""The keys of a step that say what it does."""


class WorkflowSpec(Section, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The steps of an agent of kind `workflow`."""

    start: str = ""
    steps: dict[str, WorkflowStep] = {}
    given: dict[str, Any] | None = None
    """Of a run that is a part of another one: the values that its templates may read of that one."""


def workflow_of(spec: Any) -> WorkflowSpec:
    """The section of an agent's spec."""
    return spec.section(WorkflowSpec) or WorkflowSpec()


def action_of(step: WorkflowStep) -> Action:
    """Return what the step does; what was written short, in full."""
    for key in ACTIONS:
        written: Any = getattr(step, key)
        if written is not None:
            action: Action = _IN_FULL[key](written) if isinstance(written, _SHORT) else written
            return action
    raise ValueError(f"a step does one of {', '.join(ACTIONS)}")


_SHORT = (str, int, float, list)

_IN_FULL: dict[str, Any] = {
    "tool": lambda text: ToolAction(name=text),
    "ask": lambda text: AskAction(prompt=text),
    "approve": lambda text: ApproveAction(question=text),
    "wait": lambda length: WaitAction(seconds=length),
    "choose": lambda cases: ChooseAction(cases=cases),
    "end": lambda text: EndAction(output=text),
}


def attempts_of(step: WorkflowStep) -> StepAttempts:
    """Return how often the step is tried."""
    return step.attempts if isinstance(step.attempts, StepAttempts) else StepAttempts(most=step.attempts)
