"""A person's, or a policy's, word on a whole solution before anything of it is run."""

from typing import Any

import msgspec

from cadre.engine.moves import Hold
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.kinds.solution.parse import Solution
from cadre.kinds.solution.section import KIND, solution_of
from cadre.spec.policy import ALWAYS, NEVER, reason_to_ask


def hold_solution(run: Run, proposed: Solution, arrival: Arrival) -> Hold | None:
    """The question about the solution; None when nobody is to be asked."""
    assert run.spec is not None
    policy = solution_of(run.spec).approve
    if policy == NEVER or (policy == ALWAYS and not proposed.explicit):
        return None
    calls = [{"name": call.name, "arguments": call.arguments} for call in proposed.explicit]
    values: dict[str, Any] = {
        "calls": calls,
        "names": [call["name"] for call in calls],
        "output": proposed.output,
        "task": run.task.task if run.task is not None else "",
    }
    reason = "every solution needs approval" if policy == ALWAYS else reason_to_ask(policy, values)
    if reason is None:
        return None
    seconds = run.spec.approval_seconds
    implicit = [msgspec.to_builtins(call) for call in proposed.calls if call.implicit]
    about = {"calls": calls, **({"implicit": implicit} if implicit else {}), "output": proposed.output}
    return Hold(KIND, reason, arrival.at + seconds if seconds is not None else None, about)
