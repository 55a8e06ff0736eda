"""Agents that carry out plans: given or made, of tools, members and runs of their own, side by side where they can.

No matter what its steps come to, a run that ends well answers what its plan in the simulation says.
"""

import json
import random
import re
from typing import Any

import msgspec

from cadre.journal.events import RequestedCall
from cadre.kinds.plan.section import EXECUTE, PlanSpec, PlanStep
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from simulation.kinds.code import Code
from simulation.kinds.simulated import Question, SimulatedKind, said
from simulation.plans import plan_number

_ANSWER = "answer of plan {{ task.split('plan ')[1].split(']')[0] }}"
_QUESTIONS = (
    "Nothing is to be done yet",
    "Plan anew what is still to be done",
    "Write the answer for whoever",
)
_KNOWN = re.compile(r"^- step (\d+) \(", re.MULTILINE)
_FAILED = re.compile(r"^- step (\d+) \(.*\n *failed", re.MULTILINE)


class Planning(SimulatedKind):
    """The kind `plan`, and kinds whose agents carry plans out."""

    steps = (1, 1, 2, 3)
    calls_per_step = (1, 2, 3)
    parts = True

    def drawn(self, spec: AgentSpec, chance: random.Random, *, poison: bool) -> AgentSpec:
        kind = chance.choice(("plan", "plan", "tool_calling", "code"))
        conclude = chance.random() < 0.3
        section = PlanSpec(
            execute=kind != "plan",
            steps=_given(chance) if chance.random() < 0.3 else [],
            planning=chance.random() < 0.9,
            approve_plan=chance.random() < 0.15,
            replans=chance.choice((0, 1, 2, 2)),
            tries=chance.choice((1, 3)),
            conclude=conclude,
            result=None if conclude else _ANSWER,
        )
        own = Code().drawn(spec, chance, poison=poison) if kind == "code" else spec
        return msgspec.structs.replace(own, kind=kind, planning_interval=None, **sections(*own.sections, section))

    def step(self, request: Any, step: int) -> int:
        found = _question_in(request.messages)
        return step if found is None else found

    def reply(self, asked: Question) -> ModelReply:
        chance, found = asked.chance, _question_in(asked.request.messages)
        if found is None:
            worker = Code() if asked.spec.kind == "code" else SimulatedKind()
            return worker.reply(asked)
        if found == 2:
            return said(asked.plan.answer)
        if chance.random() < 0.08:
            return said("Let me think.")
        text = str(asked.request.messages[-1]["content"])
        steps = _anew(text, chance) if found else _planned(asked, text)
        written = json.dumps({"steps": steps})
        return said(chance.choice((written, f"So:\n```json\n{written}\n```", json.dumps(steps), written[:-1])))

    def wish(self, state: Any, text: str, chance: random.Random) -> dict[str, Any]:
        numbers = [step["step"] for step in state["steps"]] if isinstance(state, dict) else []
        if not numbers or chance.random() < 0.4:
            return {"op": "add", "step": _look(0, chance)}
        if chance.random() < 0.5:
            return {"op": "change", "step": chance.choice(numbers), "details": text}
        return {"op": "drop", "step": chance.choice(numbers)}


def _question_in(messages: list[dict[str, Any]]) -> int | None:
    """Return which question about the plan is asked; None for a run that carries a step out."""
    text = str(messages[-1]["content"])
    return next((place for place, one in enumerate(_QUESTIONS) if one in text), None)


def _given(chance: random.Random) -> list[str | PlanStep]:
    looks = [msgspec.convert(_look(0, chance), PlanStep) for _ in range(chance.randrange(3))]
    return [*looks, "{{ task }}"] if chance.random() < 0.5 else [*looks, PlanStep(task="{{ task }}", needs=[])]


def _look(number: int, chance: random.Random) -> dict[str, Any]:
    args = {"n": chance.randrange(1, 30), "seconds": round(chance.expovariate(1.0), 3)}
    return {**({"step": number} if number else {}), "action": "look", "args": args, "needs": []}


def _planned(asked: Question, text: str) -> list[dict[str, Any]]:
    """Each list of calls needs some of the one before; what was complained of is left out."""
    chance, steps, before = asked.chance, list[dict[str, Any]](), list[int]()
    for calls in asked.plan.steps:
        begun: list[int] = []
        for call in calls:
            step = _step_of(len(steps) + 1, call, [one for one in before if chance.random() < 0.7])
            if "could not be taken" in text and (step["action"] == "nobody" or step.get("args") == {"n": "many"}):
                continue
            steps.append(step)
            begun.append(step["step"])
        before = begun or before
    return steps


def _step_of(number: int, call: RequestedCall, needs: list[int]) -> dict[str, Any]:
    assert isinstance(call.arguments, str)
    try:
        arguments: dict[str, Any] = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        arguments = {"n": "many"}
    step: dict[str, Any] = {"step": number, "action": call.name, "needs": needs}
    if "task" in arguments:
        read = f" It is: {{{{ step_{needs[0]} }}}}." if needs else ""
        return {**step, "task": arguments["task"] + read}
    return {**step, "args": arguments}


def _anew(text: str, chance: random.Random) -> list[dict[str, Any]]:
    """Another way to what has failed, under its number or a new one; perhaps none."""
    if chance.random() < 0.15:
        return []
    free = max(map(int, _KNOWN.findall(text)), default=0) + 1
    again = [_look(int(one), chance) for one in _FAILED.findall(text) if chance.random() < 0.6]
    assert plan_number(text) is not None
    last = {"step": free, "action": EXECUTE, "task": "{{ task }}", "needs": [one["step"] for one in again]}
    return [*again, chance.choice((last, _look(free, chance)))]
