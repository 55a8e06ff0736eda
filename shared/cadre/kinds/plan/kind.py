"""The kind `plan`: each step of a plan is carried out as soon as what it needs is done, side by side where that can be.

A step is a call of a tool or member, or a run of this agent without a plan of its own. The plan is state of the
journal; people may edit what has not begun.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from cadre.engine.answers.answer_form import last_answer_of
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.truncation import cut_off
from cadre.engine.edits import Editable, EditNotAllowed
from cadre.engine.kind import Chat, Deed
from cadre.engine.model_request import ModelRequest
from cadre.engine.moves import PARTIAL_RESULT, Answer, EndStep, Moves, Signalled, Stop, Wait
from cadre.engine.steps import step_in_work
from cadre.journal.arrivals import Arrival, ModelFailed, ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.kind import PlainKind
from cadre.kinds.plan.contract import problems_of
from cadre.kinds.plan.edits import edited_items
from cadre.kinds.plan.fold import APPROVE, EXECUTING, RESULT, fold_plan, resumed, state_of
from cadre.kinds.plan.offered import check_actions, read_plan
from cadre.kinds.plan.progress import PlanProgress
from cadre.kinds.plan.records import DECLARATION, PlanMade, PlanNote
from cadre.kinds.plan.request import ask_about_plan
from cadre.kinds.plan.section import PlanStep, plan_of
from cadre.kinds.plan.shown import shown_plan
from cadre.kinds.plan.steps import PlanError, as_steps, numbered
from cadre.kinds.plan.values import PLAN as GIVEN
from cadre.kinds.plan.values import doing_of, objective_of, part_of, shown_state, task_fields
from cadre.kinds.workflow.outcome import outcome_of
from cadre.protocol.messages import Decision, Edit, ErrorInfo, Message, TimerFired
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TeamReach

REFUSED = "refused"
"""Name of the wait of a run none of whose calls could be made: what follows is decided once that is journaled."""


class PlanKind(PlainKind):
    """`cadre.engine.kind.Kind` for runs that carry out a plan."""

    name = DECLARATION.name
    stops_circles = counts_steps = stops_repeats = False
    reads_whole = True

    def problems(self, spec: AgentSpec, reach: TeamReach) -> Iterable[ContractProblem]:
        return problems_of(spec, reach)

    # --- decide

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        """With the plan that was given, the one that a fork takes over, or the question for one."""
        number = run.task.forks.at if run.task is not None and run.task.forks is not None else 1
        state = resumed(arrival.prefix)
        walk = PlanProgress(run, arrival, state)
        if state.items:
            walk.begin_step(EXECUTING, number=number)
            return walk.go_on()
        section = plan_of(run.spec)
        given = task_fields(run).get(GIVEN) or section.steps
        if not given and section.planning:
            return walk.ask("make_plan", number=number)
        walk.begin_step(GIVEN, number=number)
        if not given:
            return walk.take("basic", [PlanStep(step=1, task=objective_of(run), needs=[])])
        try:
            steps = numbered(as_steps(given) if given is not section.steps else section.steps, section.most)
            check_actions(walk.run, steps)
        except PlanError as error:
            return walk.stop(ErrorInfo("plan-failed", f"The plan that was given is none: {error}"))
        return walk.take("given", steps)

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        assert run.model is not None
        assert run.spec is not None
        walk, purpose = PlanProgress(run, arrival, state_of(run)), run.model.purpose
        cut = cut_off(run.spec, self, reply)
        if cut is not None:
            return walk.refuse(purpose, cut)
        if purpose == "conclude":
            return walk.finish(last_answer_of(run, reply.content))
        try:
            steps = self._plan_in(run, purpose, reply.content)
        except ReadingError as error:
            return walk.refuse(purpose, error.info)
        return walk.take("model" if purpose == "make_plan" else "replan", steps)

    def _plan_in(self, run: Run, purpose: str, content: str) -> list[PlanStep]:
        """The steps that the model wants from now on. Raises ReadingError."""
        items = state_of(run).items
        done = [one.step for one in items if one.state == "done"]
        replaced = [one.step for one in items if one.state == "replaced"]
        written = read_plan(content)
        if purpose == "make_plan" and not written:
            raise ReadingError("Your plan has no steps")
        # A plan that is made anew may name what is done already.
        written = [step for step in written if isinstance(step, str) or step.step not in done]
        try:
            steps = numbered(written, plan_of(run.spec).most, before=done, taken=replaced)
            check_actions(run, steps)
        except PlanError as error:
            raise ReadingError(str(error)) from error
        return steps

    def gave_up(self, run: Run, purpose: str, failure: ModelFailed, arrival: Arrival) -> Moves | None:
        return PlanProgress(run, arrival, state_of(run)).refuse(
            purpose, ErrorInfo("no-answer", failure.message)
        )

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        if call is None or run.current is None:
            return []
        walk = PlanProgress(run, arrival, state_of(run))
        if call.kind == "question":
            return _decided(walk, call, arrival)
        outcome = outcome_of(call, arrival)
        item = next((one for one in walk.state.items if one.call == call.id), None)
        if item is None:
            return _made_of_result(outcome.value, outcome.error)
        walk.set_result(item.step, outcome.value)
        walk.end(item.step, outcome.error)
        _end_refused(walk, run)
        return walk.go_on()

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        return [Wait(f"{REFUSED}-{step_in_work(run)}-{len(calls)}-{run.entries}", arrival.at)]

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        if not isinstance(what, TimerFired) or run.current is None:
            return [] if isinstance(what, TimerFired) else None
        state = state_of(run)
        walk = PlanProgress(run, arrival, state)
        if state.stage == RESULT:
            return _made_of_result(None, next(reversed(_errors_of(run).values()), None))
        _end_refused(walk, run)
        return walk.go_on()

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        """The answer was turned down: the model writes it anew, from all results."""
        problem = error or ErrorInfo("not-passed", "The answer did not pass.")
        return PlanProgress(run, arrival, state_of(run)).refuse("conclude", problem)

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        items = state_of(run).items
        return next((part_of(run, items, one) for one in items if one.call == call.id), {})

    # --- edits

    def editable(self, run: Run) -> Editable | None:
        state = state_of(run)
        return Editable("plan", state.version, shown_plan(run, state))

    def check_edit(self, run: Run, edit: Edit) -> None:
        state = state_of(run)
        if state.stage not in (EXECUTING, APPROVE):
            raise EditNotAllowed(
                "the plan is not there, or is being made anew: look again later", "edit-too-late"
            )
        items = edited_items(state.items, edit.operations)
        try:
            check_actions(run, [one.plan for one in items if one.state == "pending"])
        except PlanError as error:
            raise EditNotAllowed(str(error)) from error

    def edited(self, run: Run, edit: Edit, arrival: Arrival) -> Moves:
        """Who looks on reads the plan as it is now; what may begin, begins."""
        walk = PlanProgress(run, arrival, state_of(run))
        steps = [one.plan for one in walk.state.items if one.state == "pending"]
        walk.note(PlanMade(step=step_in_work(run), origin="edit", steps=steps))
        return walk.moves if walk.state.stage == APPROVE else walk.go_on()

    # --- state and what is read

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_plan(run, event)

    def reads_calls(self, run: Run) -> bool:
        """The model reads what the plan shows of results, and no history."""
        return False

    def deed(self, own: KindStep) -> Deed:
        assert isinstance(own, PlanNote)
        text = "\n".join(
            f"{one.step}. [{shown_state(own.items, one)}] {one.plan.action}: {doing_of(one)}"
            for one in own.items
        )
        seen = text if own.stage in (EXECUTING, RESULT) else None
        return Deed("Plan", text, text, seen, "Observation:\n(no step of it was done)", with_calls=True)

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        return ask_about_plan(run, purpose, chat)

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        return False


def _decided(walk: PlanProgress, call: CallState, arrival: Arrival) -> Moves:
    """What follows from a person's word on the plan."""
    decision = arrival.what
    if not isinstance(decision, Decision):
        error = ErrorInfo("expired", "Nobody decided in time about the plan, so nothing of it was done.")
    elif decision.verdict != "rejected":
        return walk.carry_out()
    else:
        said = f" They said: {decision.feedback}" if decision.feedback else ""
        error = ErrorInfo("rejected", f"A person did not agree to the plan.{said}")
        if decision.feedback:
            return walk.refuse("replan" if walk.state.replans else "make_plan", error, by_person=True)
    return [EndStep(error), Stop("error", PARTIAL_RESULT, error)]


def _errors_of(run: Run) -> dict[str, ErrorInfo]:
    """What was wrong with calls of the step in work, by their ids."""
    calls = run.current.calls if run.current is not None else []
    return {call.id: call.error for call in calls if call.error is not None}


def _end_refused(walk: PlanProgress, run: Run) -> None:
    """Ends the steps whose calls could not be made, the others of their time perhaps could."""
    errors = _errors_of(run)
    for item in walk.state.items:
        if item.state == "running" and item.call in errors:
            walk.end(item.step, errors[item.call])


def _made_of_result(value: Any, error: ErrorInfo | None) -> Moves:
    """What follows from the tool that makes the answer of the result."""
    if error is None:
        return [Answer(value)]
    problem = error.saying(f"The tool that makes the answer has failed: {error.message}")
    return [EndStep(problem), Stop("error", PARTIAL_RESULT, problem)]


PLAN = PlanKind()
