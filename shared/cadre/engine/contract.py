"""What an agent expects of its team, held against what the team is: the common part, and that of its kind."""

from cadre.engine.kind import deciding_kind
from cadre.spec.agent import AgentSpec
from cadre.spec.contract import ContractProblem, TaskInputs, TeamReach, common_problems, inputs_of_checks


def contract_problems(spec: AgentSpec, reach: TeamReach) -> list[ContractProblem]:
    """What does not hold, errors first."""
    found = [*common_problems(spec, reach), *deciding_kind(spec).contract(spec, reach).problems]
    return sorted(found, key=lambda problem: ("error", "missing", "warning").index(problem.level))


def inputs_of(spec: AgentSpec) -> TaskInputs:
    """The inputs of a task that the agent reads."""
    own, checks = deciding_kind(spec).contract(spec, TeamReach()).inputs, inputs_of_checks(spec)
    return TaskInputs(own.needed | checks.needed, own.known | checks.known, own.takes_any)
