"""The parts of an `each` or `parallel` step: runs of the same agent, begun in turn, and what they give together."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.engine.moves import Call, Move, Moves, Note, RunPart
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.workflow.check import names_read
from cadre.kinds.workflow.edges import reached_from
from cadre.kinds.workflow.fold import together
from cadre.kinds.workflow.outcome import StepOutcome
from cadre.kinds.workflow.records import ItemsListed, WorkflowState
from cadre.kinds.workflow.section import EachAction, ParallelAction, WorkflowSpec, action_of, workflow_of
from cadre.kinds.workflow.values import values_of
from cadre.spec.expressions import filled

_OF_THE_RUN = ("visits", "now", "item", "index")
"""Values that a part has of its own, or with its task."""


def begin_parts(
    run: Run, state: WorkflowState, action: EachAction | ParallelAction, values: dict[str, Any]
) -> Moves | StepOutcome:
    """The first parts; the outcome where there is none. Raises ExpressionError, ValueError."""
    if isinstance(action, ParallelAction):
        return [Call([RunPart(branch, {}) for branch in action.branches])]
    items = filled(action.items, values)
    if not isinstance(items, list):
        raise ValueError(f"each.items must give a list, not {type(items).__name__}")
    if not items:
        return StepOutcome([])
    moves: list[Move] = [Note(ItemsListed(items=items))]
    first = range(min(len(items), action.parallel or _at_once(run)))
    return [*moves, Call([_item(action, items, index) for index in first])]


def on_part(
    run: Run, state: WorkflowState, action: EachAction | ParallelAction, call: CallState, outcome: StepOutcome
) -> Moves | StepOutcome:
    """What follows when a part is over: the next one, nothing for now, or the step's outcome."""
    calls: Sequence[CallState] = run.current.calls if run.current is not None else []
    answers = state.answers if outcome.error is not None else {**state.answers, call.id: outcome.value}
    failed = sum(one.error is not None for one in calls) + (outcome.error is not None)
    total = len(state.items) if isinstance(action, EachAction) else len(action.branches)
    need = min(action.need or total, total)
    if outcome.error is not None and failed > total - need:
        missing = f"{failed} of {total} have failed, {need} must succeed: {outcome.error.message}"
        return StepOutcome(error=outcome.error.saying(missing))
    if isinstance(action, EachAction) and len(calls) < total:
        return [Call([_item(action, state.items, len(calls))])]
    enough = isinstance(action, ParallelAction) and len(answers) >= need
    if enough or len(answers) + failed == total:
        return StepOutcome(together(action, calls, answers))
    return []


def part_of(run: Run, state: WorkflowState, call: CallState) -> dict[str, Any]:
    """The fields of the spec that hold in a part: its steps, and the values that they read of this run."""
    workflow = workflow_of(run.spec)
    action = action_of(workflow.steps[state.step])
    if isinstance(action, ParallelAction):
        start = action.branches[call.arguments["task"]]
    elif isinstance(action, EachAction):
        start = action.step
    else:
        return {}
    steps = reached_from(workflow.steps, [start])
    values = values_of(run, state)
    given = {name: values[name] for name in sorted(names_read(steps) - {*_OF_THE_RUN}) if name in values}
    # What an outer part has with its task is the inner one's as well, but for an item of its own.
    given |= {
        name: values[name]
        for name in ("item", "index")
        if name in values and not isinstance(action, EachAction)
    }
    section = msgspec.to_builtins(WorkflowSpec(start=start, steps=steps, given=given))
    return {
        "sections": [section],
        "output_schema": None,
        "checks": [],
        "memory": {},
        "provide_run_summary": False,
    }


def _item(action: EachAction, items: list[Any], index: int) -> RunPart:
    task = f"{action.step}: {index + 1} of {len(items)}"
    return RunPart(task, {"item": items[index], "index": index})


def _at_once(run: Run) -> int:
    return run.spec.limits.parallel if run.spec is not None else 1
