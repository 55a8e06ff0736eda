"""The kind `plan`: each step of a plan is carried out as soon as what it needs is done, side by side where that can be.

A step is a call of a tool or member, or a run of this agent without a plan of its own. The plan is state of the
journal; people may edit what has not begun.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cadre.engine.answers.answer_form import last_answer_of
from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.truncation import cut_off
from cadre.engine.draft import Draft
from cadre.engine.edits import Editable, EditNotAllowed
from cadre.engine.kind import Chat, Kind, StepAccount
from cadre.engine.model_request import ModelRequest
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.plan.contract import problems_of
from cadre.kinds.plan.edits import edited_items
from cadre.kinds.plan.fold import APPROVE, EXECUTING, RESULT, fold_plan, state_of
from cadre.kinds.plan.graph import graph_of
from cadre.kinds.plan.offered import check_actions, read_plan, strange_steps
from cadre.kinds.plan.progress import PlanProgress
from cadre.kinds.plan.records import PlanMade, PlanNote
from cadre.kinds.plan.request import ask_about_plan
from cadre.kinds.plan.section import PlanStep, ResultCall, plan_of
from cadre.kinds.plan.shown import shown_plan
from cadre.kinds.plan.steps import PlanError, as_steps, numbered
from cadre.kinds.plan.values import PLAN as GIVEN
from cadre.kinds.plan.values import doing_of, objective_of, part_of, shown_state, task_fields
from cadre.kinds.workflow.outcome import StepOutcome, outcome_of
from cadre.protocol.messages import Decision, Edit, ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import AgentContract, TeamReach


class PlanKind(Kind):
    """`cadre.engine.kind.Kind` for runs that carry out a plan."""

    guided = False

    def contract(self, spec: AgentSpec, reach: TeamReach) -> AgentContract:
        return AgentContract(problems_of(spec, reach))

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    # --- decide

    def begin(self, draft: Draft) -> None:
        """With the plan that was given, the one that a fork takes over, or the question for one."""
        run, progress, section = draft.run, PlanProgress(draft), plan_of(draft.spec)
        if isinstance(section.result, ResultCall):
            draft.plan([section.result.tool])
        if state_of(run).items:
            progress.carry_out()
            return
        given = task_fields(run).get(GIVEN) or section.steps
        if not given and section.planning:
            progress.ask("make_plan")
            return
        progress.begin_step(GIVEN)
        if not given:
            progress.take("basic", [PlanStep(step=1, task=objective_of(run), needs=[])])
            return
        try:
            steps = numbered(as_steps(given) if given is not section.steps else section.steps, section.most)
            check_actions(run, steps)
        except PlanError as error:
            progress.stop(ErrorInfo("plan-failed", f"The plan that was given is none: {error}"))
        else:
            progress.take("given", steps)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        assert draft.asked is not None
        progress, purpose = PlanProgress(draft), draft.asked.purpose
        cut = cut_off(reply)
        if cut is not None:
            progress.refuse(purpose, cut)
        elif purpose == "conclude":
            progress.finish(last_answer_of(draft.run, reply.content))
        else:
            try:
                steps, left_out = self._plan_in(draft.run, purpose, reply.content)
            except ReadingError as error:
                progress.refuse(purpose, error.info)
            else:
                progress.take("model" if purpose == "make_plan" else "replan", steps, left_out)

    def _plan_in(self, run: Run, purpose: str, content: str) -> tuple[list[PlanStep], str]:
        """Return the steps that the model wants from now on, and what is left out of them. Raises ReadingError."""
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
            steps, left_out = _without_strangers(run, steps)
            check_actions(run, steps)
        except PlanError as error:
            raise ReadingError(str(error)) from error
        return steps, left_out

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        run, progress, call = draft.run, PlanProgress(draft), calls[0]
        if run.current is None:
            return
        if call.kind == "question":
            _decided(draft, progress)
            return
        outcome = outcome_of(call, draft.event_of(call))
        item = next((one for one in progress.state.items if one.call == call.id), None)
        if item is None:
            _made_of_result(draft, progress, outcome)
            return
        if call.kind != "refused":
            progress.end(item.step, outcome.error)
        progress.end_refused()
        progress.go_on()

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """The answer was turned down: the model writes it anew, from all results."""
        problem = error or ErrorInfo("not-passed", "The answer did not pass.")
        PlanProgress(draft).refuse("conclude", problem)

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """A plan or an answer that the model does not give is done without."""
        if error.code != "no-answer" or draft.asked is None:
            return False
        PlanProgress(draft).refuse(draft.asked.purpose, error)
        return True

    def part(self, run: Run, call: CallState) -> dict[str, Any]:
        items = state_of(run).items
        return next((part_of(run, items, one) for one in items if one.call == call.id), {})

    # --- edits

    def editable(self, run: Run) -> Editable | None:
        state = state_of(run)
        return Editable("plan", state.version, shown_plan(run, state))

    def edit(self, draft: Draft, edit: Edit) -> None:
        """Who looks on reads the plan as it is now; what may begin, begins."""
        run, state = draft.run, state_of(draft.run)
        if state.stage not in (EXECUTING, APPROVE):
            raise EditNotAllowed(
                "the plan is not there, or is being made anew: look again later", "edit-too-late"
            )
        steps = [one.plan for one in edited_items(state.items, edit.operations) if one.state == "pending"]
        try:
            check_actions(run, steps)
        except PlanError as error:
            raise EditNotAllowed(str(error)) from error
        draft.edited(edit)
        draft.note(PlanMade(step=draft.step, origin="edit", steps=steps))
        PlanProgress(draft).plan_actions(steps, by_person=True)
        if state.stage != APPROVE:
            PlanProgress(draft).go_on()

    # --- state and what is read

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        fold_plan(run, event)

    def reads_calls(self, run: Run) -> bool:
        """The model reads what the plan shows of results, and no history."""
        return False

    def account(self, own: KindStep) -> StepAccount:
        assert isinstance(own, PlanNote)
        text = "\n".join(
            f"{one.step}. [{shown_state(own.items, one)}] {one.plan.action}: {doing_of(one)}"
            for one in own.items
        )
        seen = text if own.stage in (EXECUTING, RESULT) else None
        return StepAccount(
            "Plan", text, text, seen, "Observation:\n(no step of it was done)", with_calls=True
        )

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        return ask_about_plan(run, purpose, chat)


def _without_strangers(run: Run, steps: list[PlanStep]) -> tuple[list[PlanStep], str]:
    """Return the steps without those that nobody can do, where the model has been told often enough and others are
    left; and which those are."""
    strange = strange_steps(run, steps)
    is_last = state_of(run).tries + 1 >= plan_of(run.spec).tries
    if not strange or not is_last or len(strange) == len(steps):
        return steps, ""
    gone = {step.step for step in strange}
    kept = [
        msgspec.structs.replace(step, needs=[need for need in step.needs or [] if need not in gone])
        for step in steps
        if step.step not in gone
    ]
    listed = ", ".join(f"step {step.step} ({step.action})" for step in strange)
    return kept, f"left out, as there is no such action: {listed}"


def _decided(draft: Draft, progress: PlanProgress) -> None:
    """What follows from a person's word on the plan."""
    decision = draft.arrival.what
    if not isinstance(decision, Decision):
        progress.stop(
            ErrorInfo("expired", "Nobody decided in time about the plan, so nothing of it was done.")
        )
        return
    if decision.verdict != "rejected":
        agreed = [one.plan for one in progress.state.items if one.state == "pending"]
        progress.plan_actions(agreed, by_person=True)
        progress.carry_out()
        return
    said = f" They said: {decision.feedback}" if decision.feedback else ""
    error = ErrorInfo("rejected", f"A person did not agree to the plan.{said}")
    if decision.feedback:
        progress.refuse("replan" if progress.state.replans else "make_plan", error, by_person=True)
    else:
        progress.stop(error)


def _made_of_result(draft: Draft, progress: PlanProgress, outcome: StepOutcome) -> None:
    """What follows from the tool that makes the answer of the result."""
    error = outcome.error
    if error is None:
        draft.answer(outcome.value)
    else:
        progress.stop(error.saying(f"The tool that makes the answer has failed: {error.message}"))


PLAN = PlanKind()
