"""What a step does when it is entered: what begins it, or its outcome where nothing is to be waited for."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cadre.engine.draft import Draft
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.workflow.outcome import StepOutcome
from cadre.kinds.workflow.parts import begin_parts
from cadre.kinds.workflow.records import WorkflowState
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
    WorkflowStep,
    action_of,
)
from cadre.kinds.workflow.values import text_of, values_of
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


def _begun(
    draft: Draft, state: WorkflowState, step: WorkflowStep, number: int
) -> StepOutcome | Callable[[], None]:
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
    """The outcome with the step that follows, as the step says by itself; with an error where no way is open."""
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
        return (
            _first_that_holds(step.when, step.next, values)
            if step.when
            else outcome._replace(target=step.next)
        )
    except ExpressionError as error:
        return StepOutcome(error=ErrorInfo("no-value", str(error)))


def _first_that_holds(cases: list[RouteCase], default: str, values: dict[str, Any]) -> StepOutcome:
    for case in cases:
        if holds(case.condition, values):
            return StepOutcome(label=case.condition, target=case.next)
    if default:
        return StepOutcome(label="else", target=default)
    tried = "; ".join(case.condition for case in cases)
    return StepOutcome(
        error=ErrorInfo("no-way", f"None of its conditions holds ({tried}), and it has no other way.")
    )


def _task(agent: AgentAction, values: dict[str, Any]) -> dict[str, Any]:
    inputs = filled(agent.inputs, values)
    task = text_of(agent.task, values)
    return {"task": task, "additional_args": inputs} if inputs else {"task": task}


def _end_of(wait: WaitAction, values: dict[str, Any], at: float) -> float | None:
    if wait.seconds is not None:
        return at + seconds_of(filled(wait.seconds, values))
    return unix_of(filled(wait.until, values)) if wait.until is not None else None
