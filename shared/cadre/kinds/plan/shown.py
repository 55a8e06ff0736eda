"""A plan as people see it: over HTTP, in the terminal and on the console."""

from typing import Any

import msgspec

from cadre.journal.run import Phase, Run
from cadre.kinds.plan.fold import APPROVE
from cadre.kinds.plan.records import PlanItem, PlanState
from cadre.kinds.plan.values import shown_state

WAITS = "waiting"


def shown_plan(run: Run, state: PlanState) -> dict[str, Any]:
    """`state` of the run and all `steps`, each with its own `state`."""
    return {"state": state_in_words(run, state), "steps": [_shown(run, state, item) for item in state.items]}


def state_in_words(run: Run, state: PlanState) -> str:
    """INITIALIZING, PLANNING, EXECUTING, WAITING_FOR_TOOLS, COMPLETED or ERROR."""
    if run.result is not None:
        return "COMPLETED" if run.result.state == "success" else "ERROR"
    if run.phase is Phase.NEW or not state.stage:
        return "INITIALIZING"
    if state.stage in (APPROVE, "make_plan", "replan", "plan"):
        return "PLANNING"
    return "WAITING_FOR_TOOLS" if any(call.kind == "tool" for call in run.open_calls()) else "EXECUTING"


def _shown(run: Run, state: PlanState, item: PlanItem) -> dict[str, Any]:
    calls = run.current.calls if run.current is not None else []
    held = any(call.id == item.call and call.hold is not None for call in calls)
    shown = {
        "step": item.step,
        "action": item.plan.action,
        **msgspec.to_builtins(item.plan),
        "needs": item.needs,
        "state": WAITS if held and item.state == "running" else shown_state(state.items, item),
    }
    if item.call:
        shown["call"] = item.call
    if item.state == "done":
        shown["result"] = item.result
    if item.error is not None:
        shown["error"] = item.error.message
    return shown
