"""Provide the values that the steps of a plan read, its description, and the arguments of a step's call."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cadre.engine.answers.lenient_json import LenientError, Reader
from cadre.engine.calls.open_calls import RunPart
from cadre.engine.context.context_budget import known_room
from cadre.engine.context.text_size import fit, observation_of
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.plan.records import PlanItem
from cadre.kinds.plan.section import EXECUTE, WholePlan, plan_of
from cadre.protocol.messages import ErrorInfo
from cadre.spec.expressions import ExpressionError, filled

PLAN = "plan"
"""The key of a task's inputs, or of a task written as JSON, under which a plan comes with the task."""


def task_fields(run: Run) -> dict[str, Any]:
    """The run's task as an object: one that was written as JSON with an `objective`, else the text as the objective."""
    assert run.task is not None
    text = run.task.task.strip()
    try:
        written = Reader(text).value() if text.startswith("{") else None
    except LenientError:
        written = None
    fields = written if isinstance(written, dict) and "objective" in written else {"objective": run.task.task}
    own = run.task.inputs
    return {**({PLAN: own[PLAN]} if PLAN in own else {}), **fields}


def objective_of(run: Run) -> str:
    """Return what the run is to reach."""
    return observation_of(task_fields(run)["objective"])


def values_of(run: Run, items: Iterable[PlanItem]) -> dict[str, Any]:
    """Return what templates read: the task, and the results of these items that are done."""
    assert run.task is not None
    given = {name: value for name, value in run.task.inputs.items() if name != PLAN}
    values = {"task": run.task.task, "objective": objective_of(run), "inputs": given}
    return {**values, "role": plan_of(run.spec).role, **results_of(items)}


def results_of(items: Iterable[PlanItem]) -> dict[str, Any]:
    """The results of those that are done, by the names that later steps read them by."""
    return {f"step_{one.step}": one.result for one in items if one.state == "done"}


def needed(items: Iterable[PlanItem], item: PlanItem) -> list[PlanItem]:
    """The items that one needs, with those that they need themselves."""
    known = {one.step: one for one in items}
    found: dict[int, PlanItem] = {}
    waiting = [*item.needs]
    while waiting:
        one = known.get(waiting.pop())
        if one is not None and one.step not in found:
            found[one.step] = one
            waiting += one.needs
    return [one for one in known.values() if one.step in found]


def call_of(run: Run, items: list[PlanItem], item: PlanItem) -> RequestedCall | RunPart | ErrorInfo:
    """Return what the item is carried out by; an error where one of its templates has no value."""
    before, step = needed(items, item), item.plan
    values = values_of(run, before)
    try:
        args = filled(step.args, values)
        if step.action in run.tools or step.action in run.missing:
            return RequestedCall(step.action, args)
        said = [_filled(run, text, values) for text in (step.task, step.details)]
        task = "\n\n".join(text for text in said if text)
        if step.action != EXECUTE:
            return RequestedCall(step.action, {"task": task, **({"additional_args": args} if args else {})})
        prompt_of(run, items, item)
        user = plan_of(run.spec).prompt.user
        if user:
            task = observation_of(filled(user, {**values, "task": said[0], "details": said[1]}))
        given = values["inputs"]
        return RunPart(task, {**given, **results_of(before), **args})
    except ExpressionError as error:
        return ErrorInfo("no-value", str(error))


def _filled(run: Run, text: str, values: dict[str, Any]) -> str:
    """The text of a step with its values. What the task says is no template, not in the basic plan either."""
    written = text if text == values["objective"] else observation_of(filled(text, values))
    return written.strip()


def prompt_of(run: Run, items: list[PlanItem], item: PlanItem) -> str:
    """The agent's own system prompt for the run that carries the item out. Raises ExpressionError."""
    values = values_of(run, needed(items, item))
    return observation_of(filled(plan_of(run.spec).prompt.system, values))


def part_of(run: Run, items: list[PlanItem], item: PlanItem) -> dict[str, Any]:
    """The fields of the spec that hold in that run: it makes no plan, and what becomes of the result is not its own."""
    section = plan_of(run.spec)
    direct = msgspec.to_builtins(
        msgspec.structs.replace(section, steps=[], result=None, approve_plan=False, direct=_whole(run, items, item))
    )
    direct["prompt"] = {"system": prompt_of(run, items, item)}
    return {
        "sections": [direct],
        "output_schema": None,
        "checks": [],
        "memory": {},
        "planning_interval": None,
        "provide_run_summary": False,
    }


def _whole(run: Run, items: list[PlanItem], item: PlanItem) -> WholePlan:
    """Return what the model of the item's run reads of the task and the plan, within its share of the room there is.

    It says nothing of what the others have come to: that would differ when the task is sent once more."""
    room, objective = known_room(run) // 8, objective_of(run)
    current = [one for one in items if one.state != "replaced"]
    steps = []
    if len(current) > 1:
        steps = [fit(_line_of(one, is_own=one is item), room // len(current)) for one in current]
    return WholePlan(objective="" if item.plan.task == objective else fit(objective, room), steps=steps)


def _line_of(item: PlanItem, *, is_own: bool) -> str:
    return f"{_head_of(item)}: {doing_of(item)}{' (this is your step)' if is_own else ''}"


def _head_of(item: PlanItem) -> str:
    needs = f", needs {', '.join(map(str, item.needs))}" if item.needs else ""
    return f"step {item.step} ({item.plan.action}{needs})"


def shown_state(items: Iterable[PlanItem], item: PlanItem) -> str:
    """The item's state for people: one that waits for what has failed is skipped."""
    if item.state != "pending":
        return item.state
    return "skipped" if any(one.state in ("failed", "replaced") for one in needed(items, item)) else "pending"


def told_items(run: Run, items: list[PlanItem]) -> list[str]:
    """The plan as a model reads it: each step with what became of it, within its share of the room there is."""
    most = known_room(run) // 3 // max(1, len(items))
    return [fit(_told(items, one), most) for one in items]


def doing_of(item: PlanItem) -> str:
    """Return what the item does, in words or else by its arguments."""
    return item.plan.task or observation_of(item.plan.args)


def _told(items: list[PlanItem], item: PlanItem) -> str:
    text = f"{_head_of(item)}: {doing_of(item)}\n{shown_state(items, item)}"
    if item.error is not None:
        return f"{text}: {item.error.message}"
    return f"{text}: {observation_of(item.result)}" if item.state == "done" else text
