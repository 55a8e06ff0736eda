"""Report what is wrong with a workflow when its file is read, with what to do about it."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from cadre.errors import SpecError
from cadre.kinds.workflow.edges import all_edges, may_end, next_edges, reached_from
from cadre.kinds.workflow.section import (
    ACTIONS,
    KIND,
    Action,
    AgentAction,
    ApproveAction,
    AskAction,
    ChooseAction,
    EachAction,
    EndAction,
    ParallelAction,
    StepAttempts,
    ToolAction,
    WaitAction,
    WorkflowSpec,
    WorkflowStep,
    action_of,
    attempts_of,
    workflow_of,
)
from cadre.spec.answer_schema import check_schema
from cadre.spec.durations import seconds_of, unix_of
from cadre.spec.expressions import check_expression, check_template
from cadre.spec.names import check_name

VALUES = ("task", "inputs", "item", "index", "error", "undone", "visits", "now")
"""The values that templates and conditions may read in addition to the results of steps."""

_STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def check(spec: Any) -> None:
    """Raise SpecError for a workflow that cannot work; agents of other kinds have none."""
    workflow = workflow_of(spec)
    if spec.kind != KIND:
        if workflow != WorkflowSpec():
            raise SpecError(
                f"workflow is for agents of kind {KIND}: write kind: {KIND}, or leave it out", agent=spec.name
            )
        return
    if workflow == WorkflowSpec():
        return  # an agent made in Python, in parts: its runs say that there is nothing to do
    try:
        _check_graph(workflow)
        for name, step in workflow.steps.items():
            for key, problem in _problems(spec, workflow, step):
                raise SpecError(problem, key=f"workflow.steps.{name}.{key}")
    except SpecError as error:
        error.of_agent(spec.name)
        raise


def _check_graph(workflow: WorkflowSpec) -> None:
    steps = workflow.steps
    for name, step in steps.items():
        where = f"workflow.steps.{name}"
        if not _STEP_NAME.fullmatch(name) or name in VALUES:
            raise SpecError(
                f"name it by letters, digits and '_', beginning with a letter, and not"
                f" {', '.join(VALUES)}: templates read its result by its name",
                key=where,
            )
        doing = [key for key in ACTIONS if getattr(step, key) is not None]
        if len(doing) != 1:
            has = f"it has {' and '.join(doing)}" if doing else "it has none of them"
            raise SpecError(f"a step does exactly one of {', '.join(ACTIONS)}; {has}", key=where)
    for name, step in steps.items():
        for edge in all_edges(step):
            if edge.target not in steps:
                raise SpecError(
                    f"there is no step {edge.target!r}; the steps are {', '.join(steps)}",
                    key=f"workflow.steps.{name}.{edge.key}",
                )
    if workflow.start not in steps:
        raise SpecError(f"names {workflow.start!r}; write one of {', '.join(steps)}", key="workflow.start")
    if lost := [name for name in steps if name not in reached_from(steps, [workflow.start])]:
        raise SpecError(
            f"no way leads to it from {workflow.start!r}: name it where a step goes on"
            " (next, route, when, choose, approve, each, parallel, on_error, undo), or remove it",
            key=f"workflow.steps.{lost[0]}",
        )
    ending = _steps_that_end(steps)
    for name in steps:
        if name not in ending:
            raise SpecError(
                "no way leads from it to an end: let some step behind it go on to one without `next`, or to an `end`",
                key=f"workflow.steps.{name}",
            )


def _steps_that_end(steps: Mapping[str, WorkflowStep]) -> set[str]:
    ending = {name for name, step in steps.items() if may_end(step)}
    while more := {
        name
        for name, step in steps.items()
        if name not in ending and any(edge.target in ending for edge in next_edges(step))
    }:
        ending |= more
    return ending


def _problems(spec: Any, workflow: WorkflowSpec, step: WorkflowStep) -> Iterator[tuple[str, str]]:
    """Keys of the step and what is wrong there."""
    action = action_of(step)
    yield from _of_action(spec, action)
    yield from _unless("attempts.pause", lambda: seconds_of(attempts_of(step).pause))
    if attempts_of(step).most < 1:
        yield "attempts.most" if isinstance(step.attempts, StepAttempts) else "attempts", "must be at least 1"
    if step.visits < 1:
        yield "visits", "must be at least 1"
    if step.route is not None and not step.route.options:
        yield "route.options", "name at least one: the step by the label that the model answers with"
    if step.route is not None and (step.when or step.next):
        yield (
            "route",
            "the model chooses where to go: leave out `when` and `next` (route.default is the rest)",
        )
    if isinstance(action, ChooseAction | EndAction) and (step.when or step.next or step.route):
        yield "next", "this step says by itself where it leads: leave out `when`, `next` and `route`"
    if isinstance(action, ApproveAction) and (step.when or step.route):
        yield "when", "the person's word says where it leads: use yes, no and expired (and `next` for yes)"
    if step.undo and isinstance(action, ChooseAction | EndAction):
        yield "undo", "there is nothing to make up for"
    known = {*workflow.steps, *VALUES}
    for key, written, is_condition in readers(step):
        try:
            unknown = (check_expression if is_condition else check_template)(written) - known
        except ValueError as error:
            yield key, str(error)
            continue
        if unknown and workflow.given is None:
            may = ", ".join((*workflow.steps, *VALUES))
            yield key, f"reads {min(unknown)!r}, which is no step; it may read {may}"


def _of_action(spec: Any, action: Action) -> Iterator[tuple[str, str]]:
    selected = any(not isinstance(member, str) for member in spec.team)
    match action:
        case ToolAction(name=name) if name not in spec.tools:
            yield "tool", f"{name!r} is not in the agent's tools: add it to spec.tools"
        case AgentAction(name=name) if name not in spec.team and not selected:
            yield "agent", f"{name!r} is not in the agent's team: add it to spec.team"
        case AskAction(schema=schema) if schema is not None:
            yield from _unless("ask.schema", lambda: check_schema(schema))
        case EachAction() | ParallelAction():
            yield from _of_parts(action)
        case ApproveAction(seconds=seconds) if seconds is not None:
            yield from _unless("approve.seconds", lambda: seconds_of(seconds))
        case ChooseAction(cases=cases) if not cases:
            yield "choose", "write at least one case: {if: condition, next: step}"
        case WaitAction():
            yield from _of_wait(action)
        case EndAction(output=output, error=error) if error and output is not None:
            yield "end", "it has either an output or an error"
        case _:
            pass


def _of_parts(action: EachAction | ParallelAction) -> Iterator[tuple[str, str]]:
    if isinstance(action, EachAction):
        if action.parallel < 0:
            yield "each.parallel", "must be at least 1, or 0 for as many as limits.parallel"
    elif not action.branches:
        yield "parallel.branches", "name at least one: a step by the branch's name"
    elif action.need is not None and action.need > len(action.branches):
        yield "parallel.need", f"must be at most {len(action.branches)}, which is how many branches there are"
    if action.need is not None and action.need < 1:
        yield "each.need" if isinstance(action, EachAction) else "parallel.need", "must be at least 1"


def _of_wait(action: WaitAction) -> Iterator[tuple[str, str]]:
    given = [key for key in ("seconds", "until") if getattr(action, key) is not None]
    if len(given) > 1 or not (given or action.signal):
        yield "wait", "write either seconds or until, or the name of a signal (with one of them as the limit)"
    if action.expired and not (action.signal and given):
        yield (
            "wait.expired",
            "it is for a signal that is waited for until a time: add signal, and seconds or until",
        )
    if action.signal:
        yield from _unless("wait.signal", lambda: check_name("signal", action.signal))
    for key, read in (("seconds", seconds_of), ("until", unix_of)):
        written = getattr(action, key)
        if written is not None and not (isinstance(written, str) and "{" in written):
            yield from _unless(f"wait.{key}", partial(read, written))


def _unless(key: str, tried: Callable[[], Any]) -> Iterator[tuple[str, str]]:
    try:
        tried()
    except (SpecError, TypeError, ValueError) as error:
        yield key, str(error).splitlines()[0]


class StepReader(NamedTuple):
    """A template or condition of a step."""

    key: str
    written: Any
    """A condition, or a JSON value with templates in it."""
    is_condition: bool = False


def readers(step: WorkflowStep) -> Iterator[StepReader]:
    """Every template and condition of the step."""
    action = action_of(step)
    doing = next(key for key in ACTIONS if getattr(step, key) is not None)
    for case in step.when:
        yield StepReader("when", case.condition, True)
    for case in action.cases if isinstance(action, ChooseAction) else ():
        yield StepReader("choose", case.condition, True)
    for key in _TEMPLATES.get(type(action), ()):
        yield StepReader(f"{doing}.{key}", getattr(action, key))
    if step.route is not None:
        yield StepReader("route.instruction", step.route.instruction)


_TEMPLATES: dict[type, tuple[str, ...]] = {
    ToolAction: ("arguments", "instruction"),
    AskAction: ("prompt",),
    AgentAction: ("task", "inputs"),
    EachAction: ("items",),
    ApproveAction: ("question",),
    WaitAction: ("seconds", "until"),
    EndAction: ("output", "error"),
}
"""The fields of an action that are templates."""


def names_read(steps: Mapping[str, WorkflowStep]) -> set[str]:
    """Every name that a template or condition of the steps reads."""
    return {
        name
        for step in steps.values()
        for _, written, is_condition in readers(step)
        for name in (check_expression if is_condition else check_template)(written)
    }


def asks_model(spec: Any) -> bool:
    """Return True if a step asks a model."""
    return any(_asks_a_model(step) for step in workflow_of(spec).steps.values())


def _asks_a_model(step: WorkflowStep) -> bool:
    action = action_of(step)
    made = isinstance(action, ToolAction) and bool(action.instruction)
    return made or step.route is not None or isinstance(action, AskAction)
