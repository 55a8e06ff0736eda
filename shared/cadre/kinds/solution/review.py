"""A person's, or a policy's, word on a whole solution before anything of it is run."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.engine.draft import Draft
from cadre.kinds.solution.parse import Solution
from cadre.kinds.solution.section import KIND, solution_of
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, answer_type, calls_type, name_schema, read_problems
from cadre.spec.expression_types import shape_of
from cadre.spec.policy import ALWAYS, NEVER, expression_of, reason_to_ask


def hold_solution(draft: Draft, proposed: Solution) -> bool:
    """Put the question about the solution to a person. Return False if nobody is to be asked."""
    policy = solution_of(draft.spec).approve
    if policy == NEVER or (policy == ALWAYS and not proposed.explicit):
        return False
    calls = [{"name": call.name, "arguments": call.arguments} for call in proposed.explicit]
    values: dict[str, Any] = {
        "calls": calls,
        "names": [call["name"] for call in calls],
        "output": proposed.output,
        "task": draft.run.task.task if draft.run.task is not None else "",
    }
    reason = "every solution needs approval" if policy == ALWAYS else reason_to_ask(policy, values)
    if reason is None:
        return False
    seconds = draft.spec.approval_seconds
    implicit = [msgspec.to_builtins(call) for call in proposed.calls if call.implicit]
    about = {"calls": calls, **({"implicit": implicit} if implicit else {}), "output": proposed.output}
    draft.hold(KIND, reason, draft.at + seconds if seconds is not None else None, about)
    return True


def policy_problems(spec: AgentSpec) -> Iterator[ContractProblem]:
    """What the policy over solutions reads in vain."""
    expression = expression_of(solution_of(spec).approve)
    if expression is None:
        return
    names = shape_of({"type": "array", "items": name_schema(spec)}, "the list of tools and team members")
    values = {"calls": calls_type(spec, with_errors=False), "names": names, "output": answer_type(spec)}
    yield from read_problems(spec, "spec.solution.approve", expression, values, is_condition=True)
