"""The parts of an `each` or `parallel` step: runs of the same agent, begun in turn, and what they give together."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from cadre.engine.calls.open_calls import RunPart
from cadre.engine.draft import Draft
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.workflow.check import names_read
from cadre.kinds.workflow.edges import reached_from
from cadre.kinds.workflow.outcome import StepOutcome
from cadre.kinds.workflow.records import ItemsListed, WorkflowState
from cadre.kinds.workflow.section import EachAction, ParallelAction, WorkflowSpec, action_of, workflow_of
from cadre.kinds.workflow.values import values_of
from cadre.spec.expressions import filled

_OF_THE_RUN = ("visits", "now", "item", "index")
"""Values that a part has of its own, or with its task."""


def begin_parts(
    draft: Draft, action: EachAction | ParallelAction, values: dict[str, Any]
) -> StepOutcome | Callable[[], None]:
    """Return what begins the first parts of a step, or its outcome where there are none. Raises ValueError and
    ExpressionError where there is no list of items."""
    if isinstance(action, ParallelAction):
        return partial(draft.call, [RunPart(branch, {}) for branch in action.branches])
    items = filled(action.items, values)
    if not isinstance(items, list):
        raise ValueError(f"each.items must give a list, not {type(items).__name__}")
    if not items:
        return StepOutcome([])
    at_once = action.parallel or draft.spec.limits.parallel

    def begin() -> None:
        draft.note(ItemsListed(items=items))
        draft.call([_item(action, items, index) for index in range(min(len(items), at_once))])

    return begin


def after_part(
    draft: Draft, state: WorkflowState, action: EachAction | ParallelAction, outcome: StepOutcome
) -> StepOutcome | None:
    """Return the step's outcome behind that of a part; None while it goes on, with the next part if there is one."""
    calls: Sequence[CallState] = draft.run.current.calls if draft.run.current is not None else []
    failed = sum(one.error is not None for one in calls)
    total = len(state.items) if isinstance(action, EachAction) else len(action.branches)
    need = min(action.need or total, total)
    if outcome.error is not None and failed > total - need:
        missing = f"{failed} of {total} have failed, {need} must succeed: {outcome.error.message}"
        return StepOutcome(error=outcome.error.saying(missing))
    if isinstance(action, EachAction) and len(calls) < total:
        draft.call([_item(action, state.items, len(calls))])
        return None
    enough = isinstance(action, ParallelAction) and len(state.answers) >= need
    return StepOutcome(state.value) if enough or len(state.answers) + failed == total else None


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
