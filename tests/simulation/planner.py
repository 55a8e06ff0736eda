"""The plans of a seed, drawn by chance: they call and delegate, or do so in code."""

import random
from typing import Any

import msgspec

from cadre.journal.events import RequestedCall
from cadre.kinds.plan.section import EXECUTE
from cadre.spec.agent import AgentSpec
from simulation.kinds.registry import simulated
from simulation.language import Ask, Die, Fail, Final, Luck, Statement, Work, as_code
from simulation.plans import Plan, call_of
from simulation.tools import UNLUCKY

MOST_PLANS = 9


class Planner:
    """Draws plans for the runs of a team; each delegation gets its own plan."""

    def __init__(self, chance: random.Random, specs: dict[str, AgentSpec], *, poison: bool) -> None:
        self._chance = chance
        self._specs = specs
        self._poison = poison
        self._calls = 0
        self.plans: list[Plan] = []

    def draw(self, agent: str, *, part: bool = False) -> Plan:
        """The plan of a run of that agent, or of one that does a part of another run's work."""
        chance, spec = self._chance, self._specs[agent]
        kind = simulated(spec)
        number = len(self.plans)
        plan = Plan(number, [])
        self.plans.append(plan)
        for _ in range(chance.choice(kind.steps)):
            calls = [self._call(spec) for _ in range(chance.choice(kind.calls_per_step))]
            plan.steps.append(kind.varied(calls, chance))
        deadly = defect = nonsense = None
        if self._poison and chance.random() < 0.4:
            deadly = chance.randrange(len(plan.steps) + 1)
            if chance.random() < 0.3:
                deadly, defect = None, deadly
        if chance.random() < 0.1:
            nonsense = chance.randrange(len(plan.steps) + 1)
        stubborn = bool(plan.steps) and chance.random() < 0.04
        plan = plan._replace(deadly=deadly, defect=defect, nonsense=nonsense, stubborn=stubborn)
        if spec.kind == "code":
            plan = self._in_code(plan)
        for calls in plan.steps if kind.parts and not part else ():
            if len(self.plans) < MOST_PLANS and chance.random() < 0.4:
                calls.append(call_of(EXECUTE, task=self.draw(agent, part=True).task))
        if (member := kind.hands_on(spec)) is not None:
            handed = self.draw(member)
            plan = plan._replace(hands=(handed.number, *handed.hands))
        self.plans[number] = plan
        return plan

    def _in_code(self, plan: Plan) -> Plan:
        """A model that would die of a step, or fail at it, may as well write code that its sandbox dies of."""
        blocks = [self._block(calls) for calls in plan.steps]
        if blocks and plan.deadly is not None and self._chance.random() < 0.6:
            block = blocks[plan.deadly % len(blocks)]
            block.insert(self._chance.randrange(len(block) + 1), Die(plan.task))
            plan = plan._replace(deadly=None)
        if blocks and self._chance.random() < 0.3:
            blocks[-1].append(Final(plan.answer))
        final: list[Statement] = [Final(plan.answer)]
        return plan._replace(blocks=tuple(as_code(block) for block in (*blocks, final)))

    def _block(self, calls: list[RequestedCall]) -> list[Statement]:
        """The calls one by one or some at once, with this and that between them."""
        chance = self._chance
        block: list[Statement] = []
        waiting = [(call.name, _arguments(call)) for call in calls]
        while waiting:
            many = chance.choice((1, 1, 2, 3))
            if chance.random() < 0.5:
                block.append(Work(round(chance.expovariate(2.0), 3)))
            block.append(Ask(waiting[:many], timed=chance.random() < 0.3, strict=chance.random() < 0.3))
            waiting = waiting[many:]
        if chance.random() < 0.8:
            block.append(Luck())
        if chance.random() < 0.1:
            block.append(Fail("on purpose"))
        return block

    def _call(self, spec: AgentSpec) -> RequestedCall:
        chance = self._chance
        team = [member for member in spec.team if isinstance(member, str)]
        if team and len(self.plans) < MOST_PLANS and chance.random() < 0.5:
            member = chance.choice(team)
            return call_of(member, task=self.draw(member).task)
        odd = chance.random()
        if odd < 0.03:
            return call_of("nobody", n=1)
        if odd < 0.06:
            return RequestedCall("look", '{"n": "many"')
        self._calls += 1
        tools = [name for name in spec.tools if self._poison or name not in ("crash", "blast")]
        number = self._calls + (self._calls // UNLUCKY)  # now and then it is unlucky
        return call_of(chance.choice(tools), n=number, seconds=round(chance.expovariate(1.0), 3))


def _arguments(call: RequestedCall) -> dict[str, Any]:
    assert isinstance(call.arguments, str)
    try:
        arguments: dict[str, Any] = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return {"n": "many"}
    return arguments
