"""What follows in a plan: steps that may begin, another plan when some have failed, the answer when all are done."""

import msgspec

from cadre.engine.moves import (
    PARTIAL_RESULT,
    Answer,
    Ask,
    BeginStep,
    Call,
    EndStep,
    Hold,
    Move,
    Moves,
    Note,
    RunPart,
    Stop,
)
from cadre.engine.steps import step_in_work
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Run
from cadre.kinds.plan.fold import EXECUTING, after, changed
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
from cadre.kinds.plan.section import PlanStep, ResultCall, plan_of
from cadre.kinds.plan.values import call_of, objective_of, values_of
from cadre.protocol.messages import ErrorInfo
from cadre.spec.expressions import ExpressionError, filled

"""Type of the error of a run whose plan has failed."""


class PlanProgress:
    """What one arrival makes of a plan; `moves` are what it has come to, `run` is the run with its offer."""

    def __init__(self, run: Run, arrival: Arrival, state: PlanState) -> None:
        self.run, self._arrival, self.state = run, arrival, state
        self._section = plan_of(run.spec)
        self._number = step_in_work(run)
        self.moves: list[Move] = []

    def note(self, event: JournalEvent) -> None:
        """Journals an event of the kind's own; what follows is decided in the state after it."""
        self.moves.append(Note(event))
        self.state = after(self.state, event)

    def begin_step(self, name: str, *, number: int | None = None, error: ErrorInfo | None = None) -> None:
        """Begins the run's next step, or the one with that number as its first."""
        if number is None:
            self.moves.append(EndStep(error))
        self._number = self._number + 1 if number is None else number
        offer = self._arrival.offer
        self.run = msgspec.structs.replace(
            self.run, tools=offer.tools, members=offer.members, missing=offer.missing
        )
        self.state = after(self.state, ev.StepStarted(step=self._number, name=name))
        self.moves.append(BeginStep(self._number, name, own=self.state))

    def ask(self, purpose: str, *, number: int | None = None, error: ErrorInfo | None = None) -> Moves:
        """Asks the model, in a step of its own."""
        self.begin_step(purpose, number=number, error=error)
        self.moves.append(Ask(purpose, self._number))
        return self.moves

    def take(self, origin: PlanOrigin, steps: list[PlanStep], reason: str = "") -> Moves:
        """Takes the plan over, and begins with it, once a person has agreed where one must."""
        self.note(PlanMade(step=self._number, origin=origin, steps=steps, reason=reason))
        spec = self.run.spec
        if not self._section.approve_plan or not steps:
            return self.carry_out()
        seconds = spec.approval_seconds if spec is not None else None
        expires = self._arrival.at + seconds if seconds is not None else None
        question = (
            "May this plan be carried out?" if origin != "replan" else "May this new plan be carried out?"
        )
        told = {"plan": [one.plan for one in self.state.items if one.state == "pending"]}
        self.moves.append(Hold("plan", question, expires, msgspec.to_builtins(told)))
        return self.moves

    def carry_out(self, error: ErrorInfo | None = None) -> Moves:
        """Begins with the steps of the plan."""
        self.begin_step(EXECUTING, error=error)
        return self.go_on()

    def refuse(self, purpose: str, error: ErrorInfo, *, by_person: bool = False) -> Moves:
        """The model's plan or answer cannot be taken: it is asked for again, or given up."""
        given_up = self.state.tries + 1 >= self._section.tries
        self.note(PlanRefused(step=self._number, purpose=purpose, reason=error.message, given_up=given_up))
        if not given_up:
            return self.ask(purpose, error=error)
        if by_person or purpose == "conclude":
            return self.stop(error)
        if purpose == "make_plan":
            return self.take("basic", [PlanStep(step=1, task=objective_of(self.run))], error.message)
        self.begin_step(EXECUTING, error=error)
        return self._end(may_replan=False)

    def set_result(self, step: int, value: object) -> None:
        """A step's result, which this very arrival brings."""
        self.state = msgspec.structs.replace(self.state, items=changed(self.state.items, step, result=value))

    def end(self, step: int, error: ErrorInfo | None) -> None:
        """A step of the plan is over."""
        self.note(PlanStepFinished(step=step, error=error))

    def go_on(self) -> Moves:
        """Begins all steps whose needs are met; the end where nothing is left that could begin or end."""
        begun: list[PlanItem] = []
        calls: list[ev.RequestedCall | RunPart] = []
        for item in self.state.items:
            if item.state != "pending" or not self._is_free(item):
                continue
            call = call_of(self.run, self.state.items, item)
            if isinstance(call, ErrorInfo):
                self.end(item.step, call)
            else:
                begun.append(item)
                calls.append(call)
        for item in begun:
            self.note(PlanStepStarted(step=item.step))
        if calls:
            self.moves.append(Call(calls))
        if any(item.state == "running" for item in self.state.items):
            return self.moves
        return self._end(may_replan=True)

    def finish(self, value: object) -> Moves:
        """The plan's result is there: the agent's `result` makes the answer of it."""
        self.note(PlanDone(result=value))
        hook, items = self._section.result, self.state.items
        values = {**values_of(self.run, items), "result": value}
        try:
            if isinstance(hook, ResultCall):
                arguments = filled(hook.arguments, values) if hook.arguments else {"result": value}
                self.moves.append(Call([ev.RequestedCall(hook.tool, arguments)]))
            else:
                self.moves.append(Answer(value if hook is None else filled(hook, values)))
        except ExpressionError as error:
            return self.stop(ErrorInfo("no-value", f"The agent's result has no value: {error}"))
        return self.moves

    def _is_free(self, item: PlanItem) -> bool:
        done = {one.step for one in self.state.items if one.state == "done"}
        return done.issuperset(item.needs)

    def _end(self, *, may_replan: bool) -> Moves:
        items = [item for item in self.state.items if item.state != "replaced"]
        failed = [item for item in items if item.state == "failed"]
        if failed and may_replan and self.state.replans < self._section.replans:
            return self.ask("replan")
        done = [item for item in items if item.state == "done"]
        if not done or (items[-1] is not done[-1] and not self._section.conclude):
            return self.stop(_failure(failed))
        if self._section.conclude:
            return self.ask("conclude")
        return self.finish(done[-1].result)

    def stop(self, error: ErrorInfo) -> Moves:
        """Ends the run in error."""
        self.moves += [EndStep(error), Stop("error", PARTIAL_RESULT, error)]
        return self.moves


def _failure(failed: list[PlanItem]) -> ErrorInfo:
    if not failed:
        return ErrorInfo("plan-failed", "The plan has no step that could be done.")
    told = "; ".join(
        f"step {item.step} has failed: {item.error.message if item.error else ''}" for item in failed
    )
    return ErrorInfo("plan-failed", f"The plan cannot be carried out: {told}")
