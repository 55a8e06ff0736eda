"""Apply a task's settings to its run: fields of the spec, values of its variables, and functions of the caller."""

from typing import Any, TypeVar

import msgspec

from cadre.engine.context.text_size import observation_of
from cadre.engine.policies.rules import asks_for_plan
from cadre.errors import SpecError
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Phase, Run
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import Task
from cadre.protocol.policy import PLAN_TOOLS
from cadre.spec.agent import AgentSpec, spec_from
from cadre.spec.expressions import ExpressionError, filled
from cadre.spec.kinds import decided_by, facts_of

T = TypeVar("T", str, list[str], dict[str, Any])

PLAN_CARD = ToolCard(
    name=PLAN_TOOLS,
    description=(
        "Plans the tools and team members that the task needs for anything but looking things up: sending, paying,"
        " deleting, visiting pages and so on. Call it first, before you read anything: what is not planned then needs"
        " a person's word later."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The names of the tools and team members.",
            }
        },
        "required": ["tools"],
        "additionalProperties": False,
    },
    output_schema={"type": "string"},
    read_only=True,
)
"""The function by which a model plans tools."""


def as_tasked(run: Run, arrival: Arrival) -> Arrival:
    """The arrival with the functions of the caller among what is offered, and for a task that begins a run with the
    spec that holds in the run."""
    what = arrival.what
    begins = run.phase is Phase.NEW and isinstance(what, Task)
    task = what if begins and isinstance(what, Task) else run.task
    if task is not None and task.terms.tools:
        tools = {**arrival.toolset.tools, **{tool.name: tool for tool in task.terms.tools}}
        arrival = msgspec.structs.replace(arrival, toolset=msgspec.structs.replace(arrival.toolset, tools=tools))
    arrival = _with_spec(task, arrival) if task is not None and begins else arrival
    return _with_plan(run, task, arrival, begins=begins)


def _with_plan(run: Run, task: Task | None, arrival: Arrival, *, begins: bool) -> Arrival:
    """Return the arrival with the function by which the model plans its tools, if policies ask for that."""
    spec = arrival.spec if begins else run.spec
    above = task.standing.policies if task is not None and task.standing is not None else []
    policies = [spec.policies, *above] if spec is not None else []
    if spec is None or not any(policies) or not asks_for_plan(policies):
        return arrival
    if facts_of(spec, decided_by(spec) if begins else run.decided_by).plans_tools:
        return arrival
    tools = {**arrival.toolset.tools, PLAN_TOOLS: PLAN_CARD}
    return msgspec.structs.replace(arrival, toolset=msgspec.structs.replace(arrival.toolset, tools=tools))


def is_callers(run: Run, name: str) -> bool:
    """Return whether the tool is a function of the run's caller."""
    return run.task is not None and any(tool.name == name for tool in run.task.terms.tools)


def _with_spec(task: Task, arrival: Arrival) -> Arrival:
    try:
        return msgspec.structs.replace(arrival, spec=spec_of(task, arrival.spec))
    except (SpecError, msgspec.ValidationError) as error:
        return msgspec.structs.replace(arrival, problem=f"the part cannot be begun: {error}")


def spec_of(task: Task, spec: AgentSpec) -> AgentSpec:
    """Return the spec that holds in the run of a task: fields of the task stand for the agent's, each of its sections
    for that of the same kind.

    Raises SpecError or ValidationError if they do not hold.
    """
    own = dict(task.spec)
    if task.terms.output_schema is not None:
        own["output_schema"] = task.terms.output_schema
    if not own:
        return spec
    fields = msgspec.to_builtins(spec)
    if "sections" in own:
        kinds = [section["kind"] for section in own["sections"]]
        kept = [section for section in fields.get("sections", []) if section["kind"] not in kinds]
        own["sections"] = [*kept, *own["sections"]]
    return spec_from({**fields, **own})


def with_inputs(run: Run, texts: T) -> T:
    """Return texts of the agent with the task's inputs in place of their variables, where its kind has such. A text
    without a value stays as it is: the run has ended for it as it began."""
    try:
        return filled_texts(run, texts)
    except ExpressionError:
        return texts


def filled_texts(run: Run, texts: T) -> T:
    """The same. Raises ExpressionError for a text without a value."""
    if run.spec is None or run.task is None or not facts_of(run.spec, run.decided_by).has_variables:
        return texts
    values = {"inputs": run.task.inputs, **run.task.inputs}

    def text_of(value: Any) -> Any:
        match value:
            case str():
                return observation_of(filled(value, values))
            case list():
                return [text_of(one) for one in value]
            case dict():
                return {name: text_of(one) for name, one in value.items()}
            case _:
                return value

    found: T = text_of(texts)
    return found
