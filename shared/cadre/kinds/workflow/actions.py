"""Begin a step: its call, its question to the model or its parts, or its outcome where nothing is to be waited for."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from cadre.engine.calls.open_calls import RunPart
from cadre.engine.draft import Draft
from cadre.journal.events import RequestedCall
from cadre.journal.run import CallState, Run
from cadre.kinds.workflow.check import names_read
from cadre.kinds.workflow.edges import reached_from
from cadre.kinds.workflow.fold import StepOutcome
from cadre.kinds.workflow.records import ItemsListed, WorkflowState
from cadre.kinds.workflow.request import text_of, values_of
from cadre.kinds.workflow.section import (
    AgentAction,
    ApproveAction,
    AskAction,
    ChooseAction,
    EachAction,
    EndAction,
    ParallelAction,
    RouteCase,
    ToolAction,
    WaitAction,
    WorkflowSpec,
    WorkflowStep,
    action_of,
    workflow_of,
)
from cadre.protocol.messages import ErrorInfo
from cadre.spec.durations import seconds_of, unix_of
from cadre.spec.expressions import ExpressionError, filled, holds

PAUSE = "step-"
"""Before the number of a step, the name of its wait."""

OVERDUE = "expired"
"""Label of the way of a wait whose signal has not come in time."""

_WRONG = (ExpressionError, ValueError)


def begin_action(draft: Draft, state: WorkflowState, step: WorkflowStep, number: int) -> StepOutcome | None:
    """Begin the step, or return its outcome where nothing is to be waited for. `number` is the run's step."""
    try:
        begun = _begun(draft, state, step, number)
    except _WRONG as error:
        return StepOutcome(error=ErrorInfo("no-value", str(error)))
    if isinstance(begun, StepOutcome):
        return begun
    begun()
    return None


def _begun(draft: Draft, state: WorkflowState, step: WorkflowStep, number: int) -> StepOutcome | Callable[[], None]:
    """The step's outcome, or what begins it: nothing is decided before all of its templates have their values."""
    values = values_of(draft.run, state)
    match action_of(step):
        case ToolAction() as tool:
            arguments = filled(tool.arguments, values)
            if tool.instruction:
                text_of(tool.instruction, values)
                return partial(draft.ask, "arguments", number)
            return partial(draft.call, [RequestedCall(tool.name, arguments)])
        case AskAction(prompt=prompt):
            text_of(prompt, values)
            return partial(draft.ask, "ask", number)
        case AgentAction() as agent:
            return partial(draft.call, [RequestedCall(agent.name, _task(agent, values))])
        case EachAction() | ParallelAction() as parts:
            return begin_parts(draft, parts, values)
        case ApproveAction() as asked:
            expires = None if asked.seconds is None else draft.at + seconds_of(asked.seconds)
            return partial(draft.hold, state.step, text_of(asked.question, values), expires)
        case WaitAction() as wait:
            end = _end_of(wait, values, draft.at)
            return partial(draft.wait, f"{PAUSE}{number}", end, wait.signal or None)
        case ChooseAction(cases=cases, default=default):
            return _first_that_holds(cases, default, values)
        case EndAction(error=error) if error:
            return StepOutcome(error=ErrorInfo("workflow-failed", text_of(error, values)))
        case EndAction(output=output):
            return StepOutcome(state.results.get(state.last) if output is None else filled(output, values))


def way_after(run: Run, state: WorkflowState, step: WorkflowStep, outcome: StepOutcome) -> StepOutcome:
    """Return the outcome with the step that follows, as the step itself says; with an error if no way is open."""
    action = action_of(step)
    if isinstance(action, ChooseAction):
        return outcome
    if isinstance(action, ApproveAction):
        target = getattr(action, outcome.label) or (step.next if outcome.label == "yes" else "")
        if target or outcome.label == "yes":
            return outcome._replace(target=target)
        why = "A person said no." if outcome.label == "no" else "Nobody answered in time."
        said = f" They said: {outcome.value['feedback']}" if outcome.value["feedback"] else ""
        return StepOutcome(error=ErrorInfo("rejected" if outcome.label == "no" else "expired", why + said))
    if isinstance(action, WaitAction) and action.signal and outcome.label == OVERDUE:
        if action.expired:
            return outcome._replace(target=action.expired)
        return StepOutcome(error=ErrorInfo("expired", f"The signal {action.signal!r} has not come in time."))
    values = {**values_of(run, state), state.step: outcome.value}
    try:
        if step.route is not None:
            text_of(step.route.instruction, values)
        return _first_that_holds(step.when, step.next, values) if step.when else outcome._replace(target=step.next)
    except ExpressionError as error:
        return StepOutcome(error=ErrorInfo("no-value", str(error)))


def _first_that_holds(cases: list[RouteCase], default: str, values: dict[str, Any]) -> StepOutcome:
    for case in cases:
        if holds(case.condition, values):
            return StepOutcome(label=case.condition, target=case.next)
    if default:
        return StepOutcome(label="else", target=default)
    tried = "; ".join(case.condition for case in cases)
    return StepOutcome(error=ErrorInfo("no-way", f"None of its conditions holds ({tried}), and it has no other way."))


def _task(agent: AgentAction, values: dict[str, Any]) -> dict[str, Any]:
    inputs = filled(agent.inputs, values)
    task = text_of(agent.task, values)
    return {"task": task, "additional_args": inputs} if inputs else {"task": task}


def _end_of(wait: WaitAction, values: dict[str, Any], at: float) -> float | None:
    if wait.seconds is not None:
        return at + seconds_of(filled(wait.seconds, values))
    return unix_of(filled(wait.until, values)) if wait.until is not None else None


_OF_THE_RUN = ("visits", "now", "item", "index")
"""The values that belong to a part itself, or come with its task."""


def begin_parts(
    draft: Draft, action: EachAction | ParallelAction, values: dict[str, Any]
) -> StepOutcome | Callable[[], None]:
    """Return what begins the first parts of a step, or its outcome if there are no parts. Raises ValueError and
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
    # The item and index of an outer part's task also hold for the inner part, unless it has its own.
    given |= {name: values[name] for name in ("item", "index") if name in values and not isinstance(action, EachAction)}
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
