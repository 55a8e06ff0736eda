"""What the models of a seed will say: a plan per run, drawn by chance, that calls and delegates, or does so in code."""

import random
import re
from typing import Any, NamedTuple

import msgspec

from cadre.journal.events import RequestedCall
from cadre.spec.agent import AgentSpec
from simulation.language import Ask, Die, Fail, Final, Luck, Statement, Work, as_code
from simulation.tools import UNLUCKY

ITERATING = ("goals", "task_queue")
"""Kinds whose models answer thoughts and one tool."""

_MANY: dict[str, tuple[int, ...]] = {"code": (1, 2, 3, 5), **dict.fromkeys(ITERATING, (1,))}
"""How many calls a step may have, where it is not one to three."""

_PLAN = re.compile(r"\[plan (\d+)\]")
MOST_PLANS = 9


class Plan(NamedTuple):
    """The answers of one run's model, step by step; then its final answer."""

    number: int
    steps: list[list[RequestedCall]]
    deadly: int | None = None
    """The step at which asking the model kills the worker."""
    defect: int | None = None
    """The step at which asking the model raises what nothing should."""
    nonsense: int | None = None
    """The step at which the model says something without a call."""
    stubborn: bool = False
    """The model repeats its first step for ever."""
    blocks: tuple[str, ...] = ()
    """The same steps as code, for an agent that writes code."""

    @property
    def task(self) -> str:
        return f"Work on [plan {self.number}]."

    @property
    def answer(self) -> str:
        return f"answer of plan {self.number}"


def plan_number(text: str) -> int | None:
    found = _PLAN.search(text)
    return int(found[1]) if found else None


class Planner:
    """Draws plans for the runs of a team; each delegation gets a plan of its own."""

    def __init__(self, chance: random.Random, specs: dict[str, AgentSpec], *, poison: bool) -> None:
        self._chance = chance
        self._specs = specs
        self._poison = poison
        self._calls = 0
        self.plans: list[Plan] = []

    def draw(self, agent: str) -> Plan:
        chance, spec = self._chance, self._specs[agent]
        number = len(self.plans)
        plan = Plan(number, [])
        self.plans.append(plan)
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3))):
            many = _MANY.get(spec.kind, (1, 1, 2, 2, 3))
            calls = [self._call(spec) for _ in range(chance.choice(many))]
            if spec.kind in ITERATING and chance.random() < 0.2:
                calls = [_call("think", task_description="What now?")]
            elif chance.random() < 0.05 and spec.kind not in ("code", *ITERATING):
                calls.append(_call("final_answer", answer="too early"))
            plan.steps.append(calls)
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
            return _call(member, task=self.draw(member).task)
        odd = chance.random()
        if odd < 0.03:
            return _call("nobody", n=1)
        if odd < 0.06:
            return RequestedCall("look", '{"n": "many"')
        self._calls += 1
        tools = [name for name in spec.tools if self._poison or name not in ("crash", "blast")]
        number = self._calls + (self._calls // UNLUCKY)  # now and then it is unlucky
        return _call(chance.choice(tools), n=number, seconds=round(chance.expovariate(1.0), 3))


def as_solution(calls: list[RequestedCall], output: str | None, form: str) -> str:
    """The calls as a solution: as JSON, in a fence, as Python writes it, or without its last brackets."""
    solution = {"calls": [{"name": one.name, "arguments": _written_arguments(one)} for one in calls]}
    whole = {"solution": {**solution, "output": output}}
    text = msgspec.json.encode(whole).decode()
    match form:
        case "fence":
            return f"I propose:\n```json\n{text}\n```"
        case "python":
            return repr(whole)
        case "open":
            return text.removesuffix("}}")
        case _:
            return text


def _written_arguments(call: RequestedCall) -> Any:
    """As an object, or as the broken text that they are."""
    assert isinstance(call.arguments, str)
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return call.arguments


def _arguments(call: RequestedCall) -> dict[str, Any]:
    assert isinstance(call.arguments, str)
    try:
        arguments: dict[str, Any] = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return {"n": "many"}
    return arguments


def _call(name: str, **arguments: Any) -> RequestedCall:
    return RequestedCall(name, msgspec.json.encode(arguments).decode())
