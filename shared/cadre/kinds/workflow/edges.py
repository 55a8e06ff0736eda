"""Build the graph of a workflow's steps: what is reached from where, and by which label."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from cadre.kinds.workflow.section import (
    ApproveAction,
    ChooseAction,
    EachAction,
    EndAction,
    ParallelAction,
    WaitAction,
    WorkflowStep,
    action_of,
)


class GraphEdge(NamedTuple):
    """A way from one step to another."""

    key: str
    """Its place in the step's section."""
    target: str
    label: str = ""
    """The label under which it is taken; "" for always."""


def next_edges(step: WorkflowStep) -> Iterator[GraphEdge]:
    """The ways that the workflow itself takes after the step, when that has not failed."""
    match action_of(step):
        case ApproveAction() as asked:
            for answer in ("yes", "no", "expired"):
                if target := getattr(asked, answer):
                    yield GraphEdge(f"approve.{answer}", target, answer)
        case ChooseAction() as choose:
            for case in choose.cases:
                yield GraphEdge("choose", case.next, case.condition)
            if choose.default:
                yield GraphEdge("choose.default", choose.default, "else")
        case EndAction():
            return
        case WaitAction(expired=target) if target:
            yield GraphEdge("wait.expired", target, "expired")
        case _:
            pass
    for case in step.when:
        yield GraphEdge("when", case.next, case.condition)
    if step.route is not None:
        for label, target in step.route.options.items():
            yield GraphEdge(f"route.options.{label}", target, label)
        if step.route.default:
            yield GraphEdge("route.default", step.route.default, "else")
    if step.next:
        yield GraphEdge("next", step.next, "else" if step.when else "")


def part_edges(step: WorkflowStep) -> Iterator[GraphEdge]:
    """The steps with which runs of their own begin."""
    action = action_of(step)
    if isinstance(action, EachAction):
        yield GraphEdge("each.step", action.step, "each item")
    elif isinstance(action, ParallelAction):
        for branch, target in action.branches.items():
            yield GraphEdge(f"parallel.branches.{branch}", target, branch)


def all_edges(step: WorkflowStep) -> Iterator[GraphEdge]:
    """Every way that leads from the step."""
    yield from next_edges(step)
    yield from part_edges(step)
    if step.on_error:
        yield GraphEdge("on_error", step.on_error, "error")
    if step.undo:
        yield GraphEdge("undo", step.undo, "undo")


def reached_from(steps: Mapping[str, WorkflowStep], starts: Iterable[str]) -> dict[str, WorkflowStep]:
    """The steps that can be reached from those, themselves included, in the order of the file."""
    found: set[str] = set()
    waiting = [start for start in starts if start in steps]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [edge.target for edge in all_edges(steps[name]) if edge.target in steps]
    return {name: step for name, step in steps.items() if name in found}


def may_end(step: WorkflowStep) -> bool:
    """Return whether the workflow may end with the step, without an error."""
    action = action_of(step)
    if isinstance(action, EndAction):
        return True
    if isinstance(action, ChooseAction) or step.route is not None:
        return False
    if isinstance(action, ApproveAction) and (action.yes or step.next):
        return False
    return not step.next and not step.when
