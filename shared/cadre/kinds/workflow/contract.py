"""Check what the steps of a workflow expect of tools, members and each other: the arguments and the results."""

from collections.abc import Iterator, Mapping
from typing import Any

from cadre.engine.contract import delegation_problems, inputs_of
from cadre.kinds.workflow.check import readers
from cadre.kinds.workflow.edges import reached_from
from cadre.kinds.workflow.section import (
    AgentAction,
    ApproveAction,
    AskAction,
    EachAction,
    ToolAction,
    WorkflowStep,
    action_of,
    workflow_of,
)
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import (
    Callee,
    ContractProblem,
    TaskInputs,
    TeamReach,
    answer_type,
    argument_problems,
    callee_of,
    inputs_type,
    missing_arguments,
    read_problems,
)
from cadre.spec.expression_types import Typed, attributes_read, items_of, shape_of, type_of
from cadre.spec.expressions import templates_in

_TEXT = {"type": "string"}
_WORD = {"answer": {"enum": ["yes", "no", "expired"]}, "feedback": _TEXT, "by": _TEXT}
_FAILED = {"step": _TEXT, "code": _TEXT, "type": _TEXT, "message": _TEXT}
_UNDONE = {"step": _TEXT, "undo": _TEXT, "result": {}}


def problems_of(spec: AgentSpec, reach: TeamReach) -> Iterator[ContractProblem]:
    """Yield what the steps expect and what does not hold."""
    steps = workflow_of(spec).steps
    names = {**_types_of(steps, reach), "inputs": inputs_type(spec)}
    items = _items_of(steps, names)
    for name, step in steps.items():
        path = f"spec.workflow.steps.{name}"
        for key, text in _call_problems(action_of(step), reach):
            yield ContractProblem(agent=spec.name, path=f"{path}.{key}", text=text)
        for key, text in _unread(action_of(step), reach):
            yield ContractProblem(agent=spec.name, path=f"{path}.{key}", text=text, level="warning")
        known = {**names, "item": items.get(name)}
        for key, written, is_condition in readers(step):
            for template in templates_in(written):
                yield from read_problems(spec, f"{path}.{key}", template, known, is_condition=is_condition)


def inputs_of_steps(spec: AgentSpec) -> TaskInputs:
    """Return the inputs of the task that the steps read."""
    steps = workflow_of(spec).steps.values()
    found = [
        attributes_read(text, "inputs", is_condition=is_condition)
        for step in steps
        for _, written, is_condition in readers(step)
        for text in templates_in(written)
    ]
    needed = frozenset(name for read, _, _ in found for name in read)
    known = frozenset(name for _, read, _ in found for name in read)
    return TaskInputs(needed, known, any(whole for _, _, whole in found))


def _types_of(steps: Mapping[str, WorkflowStep], reach: TeamReach) -> dict[str, Typed]:
    """Return what is known of the values that templates and conditions may read."""
    return {
        "task": shape_of(_TEXT, "the task"),
        "error": _object(_FAILED, "an error"),
        "undone": _object(_UNDONE, "what is undone"),
        **{name: _result_of(name, step, reach) for name, step in steps.items()},
    }


def _result_of(name: str, step: WorkflowStep, reach: TeamReach) -> Typed:
    match action_of(step):
        case ToolAction(name=tool) if tool in reach.tools:
            return shape_of(reach.tools[tool].output_schema, f"the output_schema of tool {tool}")
        case AskAction(schema=schema):
            return shape_of(
                schema or _TEXT,
                f"ask.schema of step {name}" if schema else f"step {name}, which asks for text,",
            )
        case AgentAction(name=member) if member in reach.agents:
            return answer_type(reach.agents[member])
        case ApproveAction():
            return _object(_WORD, f"the word of a person in step {name}")
        case _:
            return None


def _object(properties: dict[str, Any], source: str) -> Typed:
    return shape_of({"type": "object", "properties": properties, "required": [*properties]}, source)


def _items_of(steps: Mapping[str, WorkflowStep], names: Mapping[str, Typed]) -> dict[str, Typed]:
    """Return what is known of `item`, by step: of those that are done for the items of one list alone."""
    found: dict[str, list[Typed]] = {}
    for step in steps.values():
        action = action_of(step)
        if isinstance(action, EachAction):
            item = items_of(type_of(action.items, names)) if isinstance(action.items, str) else None
            for name in reached_from(steps, [action.step]):
                found.setdefault(name, []).append(item)
    return {name: items[0] for name, items in found.items() if len(items) == 1}


def _call_problems(action: Any, reach: TeamReach) -> Iterator[tuple[str, str]]:
    """Keys of a step that calls something, and why that cannot be called so."""
    if isinstance(action, ToolAction) and action.name in reach.tools:
        yield from _of_arguments(action, callee_of(reach.tools[action.name]))
    if isinstance(action, AgentAction) and action.name in reach.agents:
        yield from delegation_problems(reach.agents[action.name], action.inputs, "agent.inputs")


def _of_arguments(action: ToolAction, callee: Callee) -> Iterator[tuple[str, str]]:
    for name, text in argument_problems(callee, action.arguments):
        yield f"tool.arguments.{name}", text
    lacks = missing_arguments(callee, action.arguments)
    if lacks and not action.instruction:
        yield (
            "tool.arguments",
            f"{callee.who} needs {', '.join(lacks)}: add it, or write an `instruction` from which the model"
            " makes the arguments",
        )


def _unread(action: Any, reach: TeamReach) -> Iterator[tuple[str, str]]:
    """Yield what a member is given and does not read."""
    if isinstance(action, AgentAction) and action.name in reach.agents:
        inputs = inputs_of(reach.agents[action.name])
        for name in action.inputs.keys() - inputs.needed - inputs.known if not inputs.takes_any else ():
            reads = ", ".join(sorted(inputs.needed | inputs.known)) or "none"
            yield (
                f"agent.inputs.{name}",
                f"agent {action.name} does not read {name!r} of its inputs; it reads {reads}: leave it out, or"
                " rename it",
            )
