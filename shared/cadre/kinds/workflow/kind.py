"""The kind `workflow`: the steps of the agent's file decide what is done and in which order; a model is asked only
where a step says so."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.truncation import cut_off
from cadre.engine.context.observation import observation_of
from cadre.engine.kind import Chat, Deed
from cadre.engine.model_request import ModelRequest
from cadre.engine.moves import Call, Moves, Signalled, Stop
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.kind import PlainKind
from cadre.kinds.workflow.actions import OVERDUE, PAUSE
from cadre.kinds.workflow.contract import inputs_of_steps, problems_of
from cadre.kinds.workflow.fold import fold_workflow, resumed, state_of, unsure_steps
from cadre.kinds.workflow.outcome import StepOutcome, outcome_of
from cadre.kinds.workflow.parts import on_part, part_of
from cadre.kinds.workflow.records import DECLARATION, AnswerParsed, WorkflowStepNote
from cadre.kinds.workflow.replies import read_answer, read_label, read_tool_arguments
from cadre.kinds.workflow.request import ask_for_step
from cadre.kinds.workflow.section import (
    AskAction,
    EachAction,
    ParallelAction,
    ToolAction,
    action_of,
    workflow_of,
)
from cadre.kinds.workflow.values import values_of
from cadre.kinds.workflow.walk import Walk
from cadre.protocol.messages import ErrorInfo, Message, RunState, TimerFired
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TaskInputs, TeamReach
from cadre.spec.expressions import ExpressionError, filled


class WorkflowKind(PlainKind):
    """`cadre.engine.kind.Kind` for agents that follow a workflow."""

    name = DECLARATION.name
    stops_circles = counts_steps = stops_repeats = False
    reads_whole = makes_up = True

    def problems(self, spec: AgentSpec, reach: TeamReach) -> Iterable[ContractProblem]:
        return problems_of(spec, reach)

    def inputs(self, spec: AgentSpec) -> TaskInputs:
        return inputs_of_steps(spec)

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        workflow = workflow_of(run.spec)
        if not workflow.steps:
            return [Stop("error", error=ErrorInfo("no-way", f"The workflow of {run.agent!r} has no steps."))]
        state = resumed(arrival.prefix)
        if run.task is not None and run.task.forks is not None:
            run = msgspec.structs.replace(run, step=run.task.forks.at - 1)
        return Walk(run, arrival, state).enter(state.step or workflow.start)

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        assert run.model is not None
        assert run.spec is not None
        walk = Walk(run, arrival)
        cut = cut_off(run.spec, self, reply)
        if cut is not None:
            return walk.settle(StepOutcome(error=cut))
        try:
            match run.model.purpose:
                case "arguments":
                    return _call_with(run, walk, reply)
                case "ask":
                    action = action_of(walk.step)
                    assert isinstance(action, AskAction)
                    value = read_answer(action.schema, reply)
                    walk.note(AnswerParsed(value=value))
                    return walk.settle(StepOutcome(value))
                case _:
                    return _go_where_it_says(walk, reply)
        except ReadingError as error:
            return walk.settle(StepOutcome(error=error.info))

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        if call is None or run.current is None:
            return []
        walk, outcome = Walk(run, arrival), outcome_of(call, arrival)
        action = action_of(walk.step)
        if isinstance(action, EachAction | ParallelAction):
            together = on_part(run, walk.state, action, call, outcome)
            if not isinstance(together, StepOutcome):
                return together
            walk.drop(f"{walk.state.step} is over")
            outcome = together
        return walk.settle(outcome)

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        errors = [event.error for event in calls if isinstance(event, ev.CallRefused)]
        return Walk(run, arrival).settle(StepOutcome(error=errors[0]))

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        """The answer was turned down, and there is no model to tell."""
        return Walk(run, arrival).fail(error or ErrorInfo("not-passed", "The answer did not pass."))

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        """A wait is over: that of a step, or the pause before its next attempt."""
        walk = Walk(run, arrival)
        if isinstance(what, Signalled):
            if what.wait != f"{PAUSE}{run.step}":
                return []  # of a step that was given up
            value = {"payload": what.payload, "by": what.sender}
            walk.note(AnswerParsed(value=value))
            return walk.settle(StepOutcome(value))
        if not isinstance(what, TimerFired):
            return None
        if what.name != f"{PAUSE}{run.step}":
            return []  # of a step that was given up
        if run.current is None:
            return walk.enter(walk.state.step, walk.state.attempt + 1)
        return walk.settle(StepOutcome(label=OVERDUE))

    def cancelled(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        """Make up for what was done first; if that has begun already, continue it."""
        return self._make_up(Walk(run, arrival), "cancelled", error)

    def outlived(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        """What was done is made up for first, or that goes on; what is left behind the grace stays as it is."""
        walk = Walk(run, arrival)
        if run.grace:
            return walk.stop_undoing()
        return self._make_up(walk, "error", error)

    @staticmethod
    def _make_up(walk: Walk, state: RunState, error: ErrorInfo) -> Moves | None:
        if walk.state.ending is not None:
            return []
        if not walk.state.undo:
            return None
        walk.drop(error.message)
        return walk.give_up(state, error)

    def not_undone(self, run: Run) -> list[str]:
        state = state_of(run)
        left = [entry.step for entry in reversed(state.undo)]
        if state.ending is None:
            return [*unsure_steps(run, state, run.open_calls()), *left]
        at_work = [state.ending.undone.step] if state.ending.undone is not None else []
        return [*state.ending.failed, *at_work, *left]

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        return part_of(run, state_of(run), call)

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        return Walk(run, arrival).settle(StepOutcome(error=ErrorInfo("no-answer", failure.message)))

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_workflow(run, event, n, at)

    def reads_calls(self, run: Run) -> bool:
        """The model reads what its step shows it of results, and no history."""
        return False

    def deed(self, own: KindStep) -> Deed:
        assert isinstance(own, WorkflowStepNote)
        seen = None if own.result is None else observation_of(own.result)
        nothing = "Observation:\n(nothing)"
        return Deed("Step", own.name, f"Step {own.name}", seen, nothing, with_calls=seen is None)

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        return ask_for_step(run, purpose, chat)

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return False


def _call_with(run: Run, walk: Walk, reply: ModelReplied) -> Moves:
    """The call of the step's tool; what its file gives as arguments wins over what the model made."""
    tool = action_of(walk.step)
    assert isinstance(tool, ToolAction)
    made = read_tool_arguments(run, tool.name, reply)
    try:
        arguments = {**made, **filled(tool.arguments, values_of(run, walk.state))}
    except ExpressionError as error:
        return walk.settle(StepOutcome(error=ErrorInfo("no-value", str(error))))
    return [Call([ev.RequestedCall(tool.name, arguments)])]


def _go_where_it_says(walk: Walk, reply: ModelReplied) -> Moves:
    """The way whose label the model has answered, else the step's `default`."""
    route = walk.step.route
    assert route is not None
    label = read_label(route.options, reply)
    if label is not None:
        return walk.leave(route.options[label], label)
    if route.default:
        return walk.leave(route.default, "else")
    labels = ", ".join(route.options)
    text = f"The model answered none of {labels}, and there is no default: {reply.content[:200]!r}"
    return walk.settle(StepOutcome(error=ErrorInfo("no-way", text)))


WORKFLOW = WorkflowKind()
