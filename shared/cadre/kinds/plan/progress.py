"""Continue a plan: steps that may begin, another plan when some have failed, the answer when all are done."""

import msgspec

from cadre.engine.calls.open_calls import RunPart
from cadre.engine.draft import Draft
from cadre.journal import events as ev
from cadre.kinds.plan.fold import EXECUTING, state_of
from cadre.kinds.plan.records import (
    PlanDone,
    PlanItem,
    PlanMade,
    PlanOrigin,
    PlanRefused,
    PlanState,
    PlanStepFinished,
    PlanStepStarted,
)
from cadre.kinds.plan.section import EXECUTE, PlanSpec, PlanStep, ResultCall, plan_of
from cadre.kinds.plan.values import call_of, objective_of, values_of
from cadre.protocol.messages import ErrorInfo
from cadre.spec.expressions import ExpressionError, filled


class PlanProgress:
    """The effect of one arrival on a plan; all of its state is the run's."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._run = draft, draft.run
        self._section: PlanSpec = plan_of(draft.spec)

    @property
    def state(self) -> PlanState:
        return state_of(self._run)

    def begin_step(self, name: str, *, error: ErrorInfo | None = None) -> None:
        """Begin the run's next step; its first one if there is no step to end."""
        draft, number = self._draft, self._draft.first_step
        if self._run.current is not None:
            number = draft.step + 1
            draft.end_step(error)
        draft.begin_step(number, name)

    def ask(self, purpose: str, *, error: ErrorInfo | None = None) -> None:
        """Ask the model, in a step for that alone."""
        self.begin_step(purpose, error=error)
        self._draft.ask(purpose, self._draft.step)

    def take(self, origin: PlanOrigin, steps: list[PlanStep], reason: str = "") -> None:
        """Take the plan over, and begin with it, once a person has agreed where one must."""
        draft = self._draft
        draft.note(PlanMade(step=draft.step, origin=origin, steps=steps, reason=reason))
        self.plan_actions(steps)
        if not self._section.approve_plan or not steps:
            self.carry_out()
            return
        seconds = draft.spec.approval_seconds
        expires = draft.at + seconds if seconds is not None else None
        question = "May this plan be carried out?" if origin != "replan" else "May this new plan be carried out?"
        told = {"plan": [one.plan for one in self.state.items if one.state == "pending"]}
        draft.hold("plan", question, expires, msgspec.to_builtins(told))

    def plan_actions(self, steps: list[PlanStep], *, by_person: bool = False) -> None:
        """Journal the tools and members of the steps as planned, where the agent's policies ask for that."""
        actions = [step.action for step in steps if step.action != EXECUTE]
        self._draft.plan(actions, by_person=by_person)

    def carry_out(self, error: ErrorInfo | None = None) -> None:
        """Begin with the steps of the plan."""
        self.begin_step(EXECUTING, error=error)
        self.go_on()

    def refuse(self, purpose: str, error: ErrorInfo, *, by_person: bool = False) -> None:
        """The model's plan or answer cannot be taken: it is asked for again, or given up."""
        draft, given_up = self._draft, self.state.tries + 1 >= self._section.tries
        draft.note(PlanRefused(step=draft.step, purpose=purpose, reason=error.message, given_up=given_up))
        if not given_up:
            self.ask(purpose, error=error)
        elif by_person or purpose == "conclude":
            self.stop(error)
        elif purpose == "make_plan":
            self.take("basic", [PlanStep(step=1, task=objective_of(self._run))], error.message)
        else:
            self.begin_step(EXECUTING, error=error)
            self._end(may_replan=False)

    def end(self, step: int, error: ErrorInfo | None) -> None:
        """A step of the plan is over."""
        self._draft.note(PlanStepFinished(step=step, error=error))

    def end_refused(self) -> None:
        """End the steps whose calls could not be made, where the others of their time perhaps could."""
        calls = self._run.current.calls if self._run.current is not None else []
        errors = {call.id: call.error for call in calls if call.error is not None}
        for item in self.state.items:
            if item.state == "running" and item.call in errors:
                self.end(item.step, errors[item.call])

    def go_on(self) -> None:
        """Begin all steps whose needs are met; the end where nothing is left that could begin or end."""
        begun: list[PlanItem] = []
        calls: list[ev.RequestedCall | RunPart] = []
        for item in self.state.items:
            if item.state != "pending" or not self._is_free(item):
                continue
            call = call_of(self._run, self.state.items, item)
            if isinstance(call, ErrorInfo):
                self.end(item.step, call)
            else:
                begun.append(item)
                calls.append(call)
        for item in begun:
            self._draft.note(PlanStepStarted(step=item.step))
        if calls:
            self._draft.call(calls)
        elif not any(item.state == "running" for item in self.state.items):
            self._end(may_replan=True)

    def finish(self, value: object) -> None:
        """The plan's result is there: the agent's `result` makes the answer of it."""
        draft, hook = self._draft, self._section.result
        draft.note(PlanDone(result=value))
        values = {**values_of(self._run, self.state.items), "result": value}
        try:
            if isinstance(hook, ResultCall):
                made = filled(hook.arguments, values) if hook.arguments else {"result": value}
            else:
                made = value if hook is None else filled(hook, values)
        except ExpressionError as error:
            self.stop(ErrorInfo("no-value", f"The agent's result has no value: {error}"))
            return
        if isinstance(hook, ResultCall):
            draft.call([ev.RequestedCall(hook.tool, made)])
        else:
            draft.answer(made)

    def _is_free(self, item: PlanItem) -> bool:
        done = {one.step for one in self.state.items if one.state == "done"}
        return done.issuperset(item.needs)

    def _end(self, *, may_replan: bool) -> None:
        items = [item for item in self.state.items if item.state != "replaced"]
        failed = [item for item in items if item.state == "failed"]
        done = [item for item in items if item.state == "done"]
        if failed and may_replan and self.state.replans < self._section.replans:
            self.ask("replan")
        elif not done or (items[-1] is not done[-1] and not self._section.conclude):
            self.stop(_failure(failed))
        elif self._section.conclude:
            self.ask("conclude")
        else:
            self.finish(done[-1].result)

    def stop(self, error: ErrorInfo) -> None:
        """End the run in error."""
        self._draft.end_step(error)
        self._draft.stop("error", self._draft.found(), error)


def _failure(failed: list[PlanItem]) -> ErrorInfo:
    if not failed:
        return ErrorInfo("plan-failed", "The plan has no step that could be done.")
    told = "; ".join(f"step {item.step} has failed: {item.error.message if item.error else ''}" for item in failed)
    return ErrorInfo("plan-failed", f"The plan cannot be carried out: {told}")
