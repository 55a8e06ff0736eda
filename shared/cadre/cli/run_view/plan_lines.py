"""The plan of a run, a line for each step with its state."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cadre.views.words import brief

_LONGEST = 100

PLAN_SIGNS = {
    "pending": ("☐", "bright_black"),
    "running": ("…", "yellow"),
    "waiting": ("◌", "magenta"),
    "done": ("☑", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "bright_black"),
    "replaced": ("–", "bright_black"),
}
"""Sign and style of a step by its state."""


class PlanLine(NamedTuple):
    """One step of a plan."""

    step: int
    action: str
    text: str
    needs: tuple[int, ...]
    state: str
    outcome: str = ""


def plan_line(one: PlanLine) -> str:
    """The step on a line."""
    needs = f" (needs {', '.join(map(str, one.needs))})" if one.needs else ""
    state = "" if one.state in ("pending", "done") else f" [{one.state}]"
    outcome = f" → {one.outcome}" if one.outcome else ""
    return f"{PLAN_SIGNS[one.state][0]} {one.step} {one.action} {one.text}{needs}{state}{outcome}".replace(
        "  ", " "
    )


def shown_plan(state: dict[str, Any]) -> Iterator[str]:
    """Lines of the plan as `GET /v1/runs/{id}/plan` has it."""
    yield f"plan     {state['state']}"
    for step in state["steps"]:
        yield f"  {plan_line(_line(step, step['state'], step.get('result'), step.get('error')))}"


def plan_of(items: Iterable[dict[str, Any]]) -> list[PlanLine]:
    """The plan as a step of a run's memory keeps it."""
    return [
        _line(
            one["plan"],
            one.get("state", "pending"),
            one.get("result"),
            (one.get("error") or {}).get("message"),
        )
        for one in items
    ]


def _line(step: dict[str, Any], state: str, result: Any = None, error: str | None = None) -> PlanLine:
    text = step.get("task") or (brief(step["args"], _LONGEST) if step.get("args") else "")
    outcome = brief(error if error else result, _LONGEST) if error or result is not None else ""
    needs = tuple(step.get("needs") or ())
    return PlanLine(step["step"], step.get("action", "execute"), brief(text, _LONGEST), needs, state, outcome)
