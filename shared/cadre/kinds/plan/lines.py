"""A plan in lines, for a person who looks on."""

from collections.abc import Iterator, Mapping
from typing import Any


def lines_of(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The lines of an event of the kind: what is to be done, and what has come of a step. A step of a run's memory is
    drawn with its states instead: see `cadre.cli.run_view.plan_lines`."""
    match name:
        case "plan.made":
            steps = "; ".join(
                f"{one.get('step')} {one.get('action', 'execute')}" for one in told.get("steps") or []
            )
            why = f" ({told['reason']})" if told.get("reason") else ""
            yield f"plan ({told.get('origin')}): {steps}{why}"
        case "plan.refused":
            yield f"{told.get('purpose')}: not taken: {told.get('reason', '')}"
        case "plan.step_started":
            yield f"begins step {told.get('step')} of the plan"
        case "plan.step_finished":
            error = told.get("error")
            how = f"has failed: {error.get('message')}" if error else "is done"
            yield f"step {told.get('step')} of the plan {how}"
