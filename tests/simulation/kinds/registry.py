"""The kinds of agents that the simulation draws, and their frequency."""

import random

from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import DEFAULT, decided_by, declared_kinds, version_of
from simulation.kinds.code import Code
from simulation.kinds.iterating import Goals, TaskQueue
from simulation.kinds.plan import Planning
from simulation.kinds.simulated import SimulatedKind
from simulation.kinds.solution import Solution
from simulation.kinds.workflow import Workflow

SIMULATED: dict[str, SimulatedKind] = {
    "code": Code(),
    "goals": Goals(),
    "task_queue": TaskQueue(),
    "solution": Solution(),
    "workflow": Workflow(),
    "plan": Planning(),
}

SHARES = {"code": 0.3, "goals": 0.14, "task_queue": 0.14, "solution": 0.08, "workflow": 0.16, "plan": 0.08}
"""Of the agents; the others call tools, unless a kind is installed from outside."""

_PLAIN = SimulatedKind()


def simulated(spec: AgentSpec) -> SimulatedKind:
    """Return how the simulation plays the kind that decides the agent's runs."""
    return SIMULATED.get(decided_by(spec), _PLAIN)


def draw_kind(chance: random.Random) -> str:
    """The kind of one agent; mostly one from outside where one is installed."""
    outside = [
        name
        for name, kind in declared_kinds().items()
        if not kind.behavior[version_of(kind)].startswith("cadre.kinds.")
    ]
    if outside and chance.random() < 0.5:
        return chance.choice(outside)
    return chance.choices([*SHARES, DEFAULT], [*SHARES.values(), 1 - sum(SHARES.values())])[0]
