"""A reason for the end of each run: every end needs a reason that the seed gave it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from cadre.engine.calls.repeats import action_in
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Run
from cadre.kinds.code.records import BlockFinished
from cadre.kinds.plan.records import PlanState, PlanStepFinished
from cadre.kinds.plan.section import plan_of
from cadre.kinds.solution.records import SolutionState, solution_of
from cadre.kinds.task_queue.records import QueueState
from cadre.protocol.messages import Cancel
from cadre.protocol.topology import parent_of
from simulation.courses import is_workflow, led_to
from simulation.history import Chronicle, Violation
from simulation.plans import plan_number

if TYPE_CHECKING:
    from simulation.world import World


def every_end_has_its_reason(world: World) -> None:
    """A run ends with its plan's answer unless somebody or something gave it cause to end otherwise."""
    for name, chronicle in world.history.runs.items():
        result, task = chronicle.run.result, chronicle.run.task
        if result is None or task is None:
            continue
        if is_workflow(chronicle.run) and (result.state == "success" or led_to(chronicle, result.error)):
            continue  # by its steps, see simulation.courses
        if result.state == "success":
            number = plan_number(task.task)
            if number is None or result.output != world.scenario.plans[number].answer:
                raise Violation("a run ends for a reason", f"{name} answers {result.output!r}")
        elif not _has_reason(world, chronicle):
            raise Violation("a run ends for a reason", f"{name} ended with {result.state}, {result.error}, for none")


def _has_reason(world: World, chronicle: Chronicle) -> bool:
    run, counts = chronicle.run, world.trace.counts
    result = run.result
    assert result is not None
    if result.state == "cancelled":
        return any(isinstance(one, Cancel) for many in chronicle.records.values() for one in many)
    if result.state == "max_steps_error":
        return run.step >= run.max_steps
    match result.error.type if result.error else "":
        case "AgentGenerationError":
            return counts["model-busy"] + counts["model-limited"] + counts["model-refuses"] > 0
        case "Poisoned":
            return counts["trial"] > 0
        case "DeadlineExceeded":
            return bool(run.grace) or (
                run.deadline is not None and result.at >= run.deadline - 2 * world.scenario.most_skew - 0.01
            )
        case "BudgetExceeded":
            return bool(run.grace) or run.budget is not None
        case "LoopDetected":
            # Calls that came to the same, calls that could never be made, or steps that failed alike.
            circles = bool(run.repeated) or run.refused_repeats > 0
            return circles or _is_refused_alike(run) or _is_in_circles(run)
        case "PlanFailed" | "Rejected":
            return isinstance(run.own, PlanState) and _has_no_plan_left(chronicle)
        case "AgentParsingError" | "AgentError":
            assert run.spec is not None
            own = run.own
            if isinstance(own, PlanState):
                return own.tries >= plan_of(run.spec).tries
            if isinstance(own, QueueState):
                return all(task.failed for task in own.done) and not _has_called(run)
            return isinstance(own, SolutionState) and own.misses >= solution_of(run.spec).tries
        case "Expired":
            return any(
                isinstance(event, ev.ApprovalDecided) and event.verdict == "expired" for event in chronicle.events
            )
        case _:
            return False


def _has_no_plan_left(chronicle: Chronicle) -> bool:
    """Return whether a step has failed, or a person was against it."""
    return any(
        (isinstance(event, PlanStepFinished) and event.error is not None)
        or isinstance(event, ev.EditApplied)
        or (isinstance(event, ev.ApprovalDecided) and event.verdict == "rejected")
        for event in chronicle.events
    )


def _has_called(run: Run) -> bool:
    steps = [step for step in run.steps if isinstance(step, ActionStep)]
    return any(call.kind != "refused" for step in steps for call in step.calls)


def _is_refused_alike(run: Run) -> bool:
    """Return whether a call that could not be made was asked for, and refused alike, as often as the agent's limit
    says."""
    assert run.spec is not None
    steps = [step for step in run.steps if isinstance(step, ActionStep)]
    refused = Counter(
        (call.name, msgspec.json.encode(call.arguments), call.error.message)
        for step in steps
        for call in step.calls
        if call.error is not None
    )
    return max(refused.values(), default=0) >= run.spec.limits.repeats


def _is_in_circles(run: Run) -> bool:
    """Return whether the last steps, as many as the agent's limit says, had the same answer or code, and the same
    error."""
    assert run.spec is not None
    last = [step for step in run.steps if isinstance(step, ActionStep)][-run.spec.limits.repeats :]
    alike = {(action_in(step), step.error) for step in last}
    return len(alike) == 1 and last[0].error is not None


def _tasks_of(world: World, run: Run) -> str:
    """Its task, and those of the runs of the same agent whose parts it does."""
    above = world.history.runs.get(parent_of(run.id) or "")
    text = run.task.task if run.task is not None else ""
    return text + (_tasks_of(world, above.run) if above is not None and above.run.agent == run.agent else "")


def poison_takes_nobody_along(world: World) -> None:
    """If one message alone kills its workers, and nothing else does, no other is judged to be poison."""
    counts = world.trace.counts
    if len(world.deadly) != 1 or counts["crash"] or counts["drain"]:
        return
    (deadly,) = world.deadly
    for name, chronicle in world.history.runs.items():
        run = chronicle.run
        error = run.result.error if run.result is not None else None
        guilty = deadly in _tasks_of(world, run)
        by_a_step = is_workflow(run) and led_to(chronicle, error)
        if error is not None and error.type == "Poisoned" and not (guilty or by_a_step):
            raise Violation("poison takes nobody along", f"{name} was ended, {deadly} was the poison")
        for event in chronicle.events:
            refused = isinstance(event, ev.ToolAnswered) and event.error and event.error.type == "Poisoned"
            stopped = isinstance(event, BlockFinished) and event.error and event.error.type == "Poisoned"
            if stopped and not guilty:
                raise Violation("poison takes nobody along", f"code of {name} was refused, {deadly} is the poison")
            if isinstance(event, ev.ToolAnswered) and refused and event.call != deadly:
                raise Violation("poison takes nobody along", f"{event.call} was refused, {deadly} is the poison")
