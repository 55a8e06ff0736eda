"""The kind `workflow`: the steps of the agent's file decide what is done and in which order; a model is asked only
where a step says so."""

from collections.abc import Iterator, Sequence
from typing import Any

from cadre.engine.answers.answer_form import CUT, cut_off
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.context.text_size import observation_of
from cadre.engine.draft import Draft
from cadre.engine.graph import label
from cadre.engine.kind import Absent, Chat, Kind, Signalled, StepAccount
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import CallState, Run
from cadre.kinds.workflow.actions import OVERDUE, PAUSE, after_part, part_of
from cadre.kinds.workflow.contract import inputs_of_steps, problems_of
from cadre.kinds.workflow.edges import all_edges, may_end
from cadre.kinds.workflow.fold import StepOutcome, fold_workflow, not_undone, outcome_of, state_of
from cadre.kinds.workflow.records import AnswerParsed, WorkflowState, WorkflowStepNote
from cadre.kinds.workflow.request import ask_for_step, read_answer, read_label, read_tool_arguments, values_of
from cadre.kinds.workflow.section import (
    ACTIONS,
    AskAction,
    EachAction,
    ParallelAction,
    ToolAction,
    action_of,
    workflow_of,
)
from cadre.kinds.workflow.walk import Walk
from cadre.protocol.messages import ErrorInfo, Message, RunState, TimerFired
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import AgentContract, TeamReach
from cadre.spec.expressions import ExpressionError, filled


class WorkflowKind(Kind):
    """`cadre.engine.kind.Kind` for agents that follow a workflow."""

    guided = False

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        return AgentContract(problems_of(spec, reach), inputs_of_steps(spec))

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    def begin(self, draft: Draft) -> None:
        workflow = workflow_of(draft.spec)
        draft.plan([*draft.spec.tools, *map(str, draft.spec.team)])
        if workflow.steps:
            Walk(draft).enter(state_of(draft.run).step or workflow.start)
        else:
            no_way = ErrorInfo("no-way", f"The workflow of {draft.run.agent!r} has no steps.")
            draft.stop("error", error=no_way)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        walk, asked = Walk(draft), draft.asked
        assert asked is not None
        if reply.finish_reason == CUT:
            walk.settle(StepOutcome(error=cut_off()))
            return
        match asked.purpose:
            case "arguments":
                _call_with(draft, walk, reply)
            case "ask":
                _take_answer(draft, walk, reply)
            case _:
                _go_where_it_says(walk, reply)

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        if draft.run.current is None:
            return
        closed = draft.event_of(calls[0])
        walk, outcome = Walk(draft), outcome_of(calls[0], closed)
        action = action_of(walk.step)
        if isinstance(action, EachAction | ParallelAction):
            together: StepOutcome | None = outcome
            if not isinstance(closed, ev.CallRefused):
                together = after_part(draft, walk.state, action, outcome)
            if together is None:
                return
            draft.drop(f"{walk.state.step} is over")
            outcome = together
        walk.settle(outcome)

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """The answer was turned down, and there is no model to tell."""
        Walk(draft).fail(error or ErrorInfo("not-passed", "The answer did not pass."))

    def arrived(self, draft: Draft, what: Message | Signalled | Absent) -> bool:
        """A wait is over: that of a step, or the pause before its next attempt."""
        run, walk = draft.run, Walk(draft)
        pause = f"{PAUSE}{run.step}"  # any other is of a step that was given up
        match what:
            case Signalled(wait=name):
                if name == pause:
                    value = {"payload": what.payload, "by": what.sender}
                    draft.note(AnswerParsed(value=value))
                    walk.settle(StepOutcome(value))
            case TimerFired(name=name):
                if name == pause and run.current is None:
                    walk.enter(walk.state.step, walk.state.attempt + 1)
                elif name == pause:
                    walk.settle(StepOutcome(label=OVERDUE))
            case _:
                return False
        return True

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """A step whose model gives no answer has failed. At any other end what was done is made up for first, or that
        goes on; what is left behind the grace stays as it is."""
        match error.code:
            case "no-answer":
                Walk(draft).settle(StepOutcome(error=error))
                return True
            case "cancelled":
                return self._make_up(draft, "cancelled", error)
            case "deadline" | "budget" if draft.run.grace:
                Walk(draft).stop_undoing()
                return True
            case "deadline" | "budget":
                return self._make_up(draft, "error", error)
            case _:
                return False

    @staticmethod
    def _make_up(draft: Draft, ends: RunState, error: ErrorInfo) -> bool:
        state = state_of(draft.run)
        if state.ending is None and not state.undo:
            return False
        draft.begin_grace(error)
        if state.ending is None:
            Walk(draft).give_up(ends, error)
        return True

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        return part_of(run, state_of(run), call)

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_workflow(run, event, n, at)
        if run.spec is not None and isinstance(run.own, WorkflowState):
            run.own.not_undone = not_undone(run, run.own)

    def reads_calls(self, run: Run) -> bool:
        """The model reads what its step shows it of results, and no history."""
        return False

    def account(self, own: KindStep) -> StepAccount:
        assert isinstance(own, WorkflowStepNote)
        seen = None if own.result is None else observation_of(own.result)
        nothing = "Observation:\n(nothing)"
        return StepAccount("Step", own.name, f"Step {own.name}", seen, nothing, with_calls=seen is None)

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        return ask_for_step(run, purpose, chat)


def _call_with(draft: Draft, walk: Walk, reply: ModelReplied) -> None:
    """The call of the step's tool; what its file gives as arguments wins over what the model made."""
    tool = action_of(walk.step)
    assert isinstance(tool, ToolAction)
    try:
        made = read_tool_arguments(draft.run, tool.name, reply)
        arguments = {**made, **filled(tool.arguments, values_of(draft.run, walk.state))}
    except ReadingError as error:
        walk.settle(StepOutcome(error=error.info))
    except ExpressionError as error:
        walk.settle(StepOutcome(error=ErrorInfo("no-value", str(error))))
    else:
        draft.call([ev.RequestedCall(tool.name, arguments)])


def _take_answer(draft: Draft, walk: Walk, reply: ModelReplied) -> None:
    action = action_of(walk.step)
    assert isinstance(action, AskAction)
    try:
        value = read_answer(action.schema, reply)
    except ReadingError as error:
        walk.settle(StepOutcome(error=error.info))
    else:
        draft.note(AnswerParsed(value=value))
        walk.settle(StepOutcome(value))


def _go_where_it_says(walk: Walk, reply: ModelReplied) -> None:
    """The way whose label the model has answered, else the step's `default`."""
    route = walk.step.route
    assert route is not None
    label = read_label(route.options, reply)
    if label is not None:
        walk.leave(route.options[label], label)
    elif route.default:
        walk.leave(route.default, "else")
    else:
        labels = ", ".join(route.options)
        text = f"The model answered none of {labels}, and there is no default: {reply.content[:200]!r}"
        walk.settle(StepOutcome(error=ErrorInfo("no-way", text)))


WORKFLOW = WorkflowKind()


_DOTTED = ("on_error", "undo")


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: steps with what they do, and the ways between them."""
    workflow = workflow_of(spec)
    yield "flowchart TD"
    yield f"    start([start]) --> {_node(workflow.start)}"
    for name, step in workflow.steps.items():
        doing = next(key for key in ACTIONS if getattr(step, key) is not None)
        begin, end = _SHAPES.get(doing, ("[", "]"))
        yield f'    {_node(name)}{begin}"{name}<br/>{doing}"{end}'
    for name, step in workflow.steps.items():
        for edge in all_edges(step):
            arrow = "-.->" if edge.key in _DOTTED else "-->"
            word = f'|"{label(edge.label)}"| ' if edge.label else " "
            yield f"    {_node(name)} {arrow}{word}{_node(edge.target)}"
        if may_end(step):
            yield f"    {_node(name)} --> stop([end])"


_SHAPES = {"choose": ("{", "}"), "approve": ("{{", "}}"), "wait": ("([", "])"), "end": ("[[", "]]")}


def _node(name: str) -> str:
    return f"step_{name}"
