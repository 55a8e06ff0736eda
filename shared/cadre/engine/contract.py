"""Compare what an agent expects of its team with what the team is: the common part, and that of its kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from cadre.engine.kind import deciding_kind
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import (
    ContractProblem,
    TaskInputs,
    TeamReach,
    argument_problems,
    callee_of,
    common_problems,
    inputs_of_checks,
    missing_arguments,
    object_problem,
)


def contract_problems(spec: AgentSpec, reach: TeamReach) -> list[ContractProblem]:
    """Return what does not hold, errors first."""
    found = [*common_problems(spec, reach), *deciding_kind(spec).contract(spec, reach).problems]
    return sorted(found, key=lambda problem: ("error", "missing", "warning").index(problem.level))


def inputs_of(spec: AgentSpec) -> TaskInputs:
    """The inputs of a task that the agent reads, or that its `input_schema` names."""
    own, checks = deciding_kind(spec).contract(spec, TeamReach()).inputs, inputs_of_checks(spec)
    declared = frozenset((spec.input_schema or {}).get("properties", {}))
    return TaskInputs(own.needed | checks.needed, own.known | checks.known | declared, own.takes_any)


def delegation_problems(member: AgentSpec, given: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    """Keys of what a step gives a member as its inputs, and why it does not take that. `key` is the key of them all."""
    callee = callee_of(member)
    found = [(f"{key}.{name}", text) for name, text in argument_problems(callee, given)]
    needed = frozenset(missing_arguments(callee, given))
    if needed:
        found.append((key, f"{callee.who} needs {', '.join(sorted(needed))} of its inputs: add it here"))
    if not found and (text := object_problem(callee, given)) is not None:
        found.append((key, text))
    yield from found
    if lacks := inputs_of(member).needed - given.keys() - needed:
        yield (
            key,
            f"agent {member.name} reads {', '.join(sorted(lacks))} of its inputs, and is not given it: add it here, or"
            f" let the agent write `inputs.{min(lacks)} | default(…)`",
        )
