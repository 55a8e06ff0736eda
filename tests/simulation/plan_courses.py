"""Plans are walked again next to the product: a step begins when what it needs is done and ends as its call did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cadre.journal import events as ev
from cadre.kinds.plan.records import PlanMade, PlanState, PlanStepFinished, PlanStepStarted
from cadre.kinds.plan.section import EXECUTE, plan_of
from simulation.history import Chronicle, Violation

if TYPE_CHECKING:
    from simulation.world import World

IN_ORDER = "a step of a plan begins once, when what it needs is done"
AS_CALLED = "a step of a plan comes to what its call came to"
WHOLE = "a plan that was carried out is done to its last step"


@dataclass
class _Step:
    action: str
    needs: frozenset[int]
    state: str = "pending"
    call: str = ""


@dataclass
class _Walk:
    chronicle: Chronicle
    steps: dict[int, _Step] = field(default_factory=dict)
    opening: list[int] = field(default_factory=list)
    came_well: dict[str, bool] = field(default_factory=dict)
    """Of each call that is over, whether it gave a result."""

    def wrong(self, promise: str, what: str) -> Violation:
        return Violation(promise, f"{self.chronicle.run.id}: {what}")

    def made(self, event: PlanMade) -> None:
        again = {step.step for step in event.steps}
        for number, step in list(self.steps.items()):
            if step.state == "pending":
                del self.steps[number]
            elif number in again:
                if step.state != "failed":
                    raise self.wrong(IN_ORDER, f"step {number} is {step.state} and is planned again")
                del self.steps[number]
            elif step.state == "failed" and event.origin == "replan":
                step.state = "replaced"
        for one in event.steps:
            self.steps[one.step] = _Step(one.action, frozenset(one.needs or ()))

    def begun(self, number: int) -> None:
        step = self.steps.get(number)
        if step is None or step.state != "pending":
            raise self.wrong(IN_ORDER, f"step {number} begins, and is {step and step.state}")
        done = {other for other, one in self.steps.items() if one.state == "done"}
        if step.needs - done:
            raise self.wrong(IN_ORDER, f"step {number} begins before {sorted(step.needs - done)}")
        step.state = "running"
        self.opening.append(number)

    def opened(self, call: str, name: str) -> None:
        if not self.opening or any(step.call == call for step in self.steps.values()):
            return
        step = self.steps[self.opening.pop(0)]
        own = self.chronicle.run.agent if step.action == EXECUTE else step.action
        if name != own:
            raise self.wrong(AS_CALLED, f"{step.action} is carried out by {name}")
        step.call = call

    def ended(self, event: PlanStepFinished) -> None:
        step = self.steps.get(event.step)
        if step is not None and step.state == "pending" and event.error is not None:
            step.state = "failed"  # a template has no value
            return
        if step is None or step.state != "running":
            raise self.wrong(IN_ORDER, f"step {event.step} ends, and is {step and step.state}")
        if (event.error is None) != self.came_well.get(step.call, False):
            raise self.wrong(AS_CALLED, f"step {event.step} ended with {event.error}")
        step.state = "done" if event.error is None else "failed"

    def over(self, event: ev.RunFinished) -> None:
        if event.state != "success":
            return
        left = [step for step in self.steps.values() if step.state != "replaced"]
        if any(step.state == "running" for step in left):
            raise self.wrong(WHOLE, "it answers while steps are under way")
        if not plan_of(self.chronicle.run.spec).conclude and left[-1].state != "done":
            raise self.wrong(WHOLE, f"its last step is {left[-1].state}")


def plans_go_as_they_say(world: World) -> None:
    """From the plan to its steps, over every edit and every plan that was made again."""
    counts = world.trace.counts
    for chronicle in world.history.runs.values():
        if not isinstance(chronicle.run.own, PlanState):
            continue
        walk, together = _Walk(chronicle), 0
        for event in chronicle.events:
            match event:
                case PlanMade():
                    walk.made(event)
                    counts[f"plan-{event.origin}"] += 1
                case PlanStepStarted(step=number):
                    walk.begun(number)
                    together = max(together, sum(one.state == "running" for one in walk.steps.values()))
                case ev.ToolCalled(call=call, tool=name) | ev.DelegateStarted(call=call, member=name):
                    walk.opened(call, name)
                case ev.ApprovalRequested(call=call, kind=kind, name=name) if kind != "question":
                    walk.opened(call, name)
                case ev.CallRefused(call=call, name=name):
                    walk.opened(call, name)
                case ev.ToolAnswered(call=call, error=error):
                    walk.came_well[call] = error is None
                case ev.DelegateFinished(call=call, state=state, output=output):
                    found = state == "max_steps_error" and output is not None
                    walk.came_well[call] = state == "success" or found
                case PlanStepFinished():
                    walk.ended(event)
                case ev.RunFinished():
                    walk.over(event)
                case _:
                    pass
        counts["plan-side-by-side"] += together > 1
