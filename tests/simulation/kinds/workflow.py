"""Agents that follow a workflow, drawn step by step: tools, questions, members, lists, branches, waits, ways back.

No matter what its steps come to, a workflow that ends well answers what its plan says.
"""

import json
import random
import re
from typing import Any

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.kinds.workflow.section import (
    AgentAction,
    ApproveAction,
    AskAction,
    ChooseAction,
    EachAction,
    EndAction,
    ParallelAction,
    RouteCase,
    RouteChoice,
    StepAttempts,
    ToolAction,
    WaitAction,
    WorkflowSpec,
    WorkflowStep,
    workflow_of,
)
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import declared_kinds, sections
from simulation.kinds.simulated import Question, SimulatedKind, said
from simulation.tools import CARDS

SIGNAL = "go"
"""Signals that people send to runs that wait for it, and to others."""

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_TASK = "Work on [plan {{ task.split('hand ', 1)[1].replace('] to others', ']', 1) }}"
_ANSWER = "answer of plan {{ task.split('plan ')[1].split(']')[0] }}"
_ASKED = re.compile(r"\[(say|number|arguments|route) (\d+)\]")


class Workflow(SimulatedKind):
    """The kind `workflow`: its runs have one plan's answer, and perhaps a member's plan to hand on."""

    steps = (0,)

    def drawn(self, spec: AgentSpec, chance: random.Random, *, poison: bool) -> AgentSpec:
        drawing = _Drawing(spec, chance, poison=poison)
        spec = msgspec.structs.replace(spec, **sections(drawing.workflow()))
        declared_kinds()["workflow"].check(spec)
        return spec

    def hands_on(self, spec: AgentSpec) -> str | None:
        steps = workflow_of(spec).steps.values()
        return next((step.agent.name for step in steps if step.agent is not None), None)

    def step(self, request: ModelRequest, step: int) -> int:
        found = _ASKED.search(str(request.messages))
        return int(found[2]) if found else -1

    def reply(self, asked: Question) -> ModelReply:
        found, chance = _ASKED.search(str(asked.request.messages)), asked.chance
        assert found is not None, "the model was asked by no step"
        if chance.random() < 0.08:
            return said("Let me think.")
        match found[1]:
            case "say":
                return said(f"Said {found[2]}.")
            case "route":
                return said(chance.choice(('"Left."', " RIGHT", "left", "right", '{"answer": "left"}', "up")))
            case "number":
                text = json.dumps({"n": int(found[2]) + 1})
            case _:
                text = json.dumps({"n": int(found[2]) + 1, "seconds": 0.5})
        return said(chance.choice((text, f"```json\n{text}\n```", text.replace('"', "'"), text[:-1])))


class _Drawing:
    def __init__(self, spec: AgentSpec, chance: random.Random, *, poison: bool) -> None:
        self._chance = chance
        self._tools = [name for name in CARDS if poison or name not in ("crash", "blast")]
        self._team = [member for member in spec.team if isinstance(member, str)]
        self._steps: dict[str, WorkflowStep] = {}
        self._asked = 0
        self._sure: dict[str, int] = {}
        """Tool steps behind which no way leads but with their result, by their number."""

    def workflow(self) -> WorkflowSpec:
        names = [f"s{number}" for number in range(self._chance.choice((1, 2, 3, 3, 4, 6)))]
        for name, following in zip(names, [*names[1:], "done"], strict=True):
            self._block(name, following)
        self._steps["done"] = WorkflowStep(end=EndAction(output=_ANSWER))
        return WorkflowSpec(start=names[0], steps=self._steps)

    def _block(self, name: str, following: str) -> None:
        chance = self._chance
        draw = chance.choice(
            ("tool",) * 4
            + ("made", "say", "number", "agent", "wait", "signal", "approve", "choose", "each", "each")
            + ("parallel", "route")
        )
        if draw == "agent" and (not self._team or any(step.agent for step in self._steps.values())):
            draw = "tool"
        if draw == "choose":
            self._choose(name, following)
            return
        step = self._step(name, draw, following)
        if draw == "tool" and not step.on_error:
            assert isinstance(step.tool, ToolAction)
            self._sure[name] = step.tool.arguments["n"]
        self._steps[name] = step

    def _step(self, name: str, draw: str, following: str) -> WorkflowStep:
        """The step, and what belongs to it; `following` is "" in a part."""
        chance, more = self._chance, dict[str, Any](next=following)
        if chance.random() < 0.3:
            on = chance.choice(([], ["luck", "took longer"], ["Interrupted", "ValueError"]))
            more["attempts"] = StepAttempts(most=2, on=on, pause=chance.choice((0.0, 1.0, 30.0)))
        if following and chance.random() < 0.6:
            more["on_error"] = following
        if chance.random() < 0.3:
            more["undo"] = f"{name}_undo"
            self._steps[f"{name}_undo"] = WorkflowStep(tool=self._call("save", "book"))
        number = self._asked
        match draw:
            case "made":
                more["tool"] = ToolAction(
                    name=chance.choice(self._tools), instruction=f"As [arguments {number}] of {{{{ task }}}}."
                )
            case "say":
                more["ask"] = AskAction(prompt=f"Tell [say {number}] of {{{{ task }}}}.")
            case "number":
                more["ask"] = AskAction(prompt=f"Give [number {number}] of {{{{ task }}}}.", schema=NUMBER)
            case "agent":
                more["agent"] = AgentAction(name=chance.choice(self._team), task=_TASK)
            case "wait":
                more["wait"] = chance.choice((0.5, 3.0, "20s", "2h"))
            case "signal":
                limit = chance.choice((4.0, 60.0, None))
                way = following if limit is not None and chance.random() < 0.7 else ""
                more["wait"] = WaitAction(signal=SIGNAL, seconds=limit, expired=way)
            case "approve":
                seconds = chance.choice((None, 5.0, 60.0))
                ways = {way: following for way in ("no", "expired") if chance.random() < 0.6}
                more["approve"] = ApproveAction(question="Go on?", seconds=seconds, **ways)
            case "each":
                items: list[Any] = [chance.randrange(1, 20) for _ in range(chance.choice((0, 1, 2, 3, 5)))]
                need = chance.choice((None, 1)) if items else None
                part = self._part(f"{name}_item", each=True)
                more["each"] = EachAction(items=items, step=part, parallel=chance.choice((0, 1, 2)), need=need)
            case "parallel":
                branches = {side: self._part(f"{name}_{side}") for side in ("one", "two", "three")}
                more["parallel"] = ParallelAction(branches=branches, need=chance.choice((None, 1, 2)))
            case "route":
                route = RouteChoice(
                    instruction=f"Choose [route {number}] for {{{{ task }}}}.",
                    options={"left": following, "right": following},
                    default=chance.choice(("", following)),
                )
                more |= {"tool": self._call(*self._tools), "next": "", "route": route}
            case _:
                more["tool"] = self._call(*self._tools)
        self._asked += draw in ("made", "say", "number", "route")
        return WorkflowStep(**more)

    def _part(self, name: str, *, each: bool = False) -> str:
        """One step or two, which are done in a run of their own."""
        chance = self._chance
        kinds = ("tool", "tool", "tool", "say", "wait", "approve", "signal")
        second = f"{name}_then" if chance.random() < 0.3 else ""
        step = self._step(name, chance.choice(kinds), second)
        if each and isinstance(step.tool, ToolAction):
            arguments = {**step.tool.arguments, "n": "{{ item }}"}
            step = msgspec.structs.replace(step, tool=ToolAction(name=step.tool.name, arguments=arguments))
        self._steps[name] = step
        if second:
            self._steps[second] = self._step(second, chance.choice(kinds), "")
        return name

    def _choose(self, name: str, following: str) -> None:
        """Back to an earlier step, once; or by what one of them gave."""
        cases = [RouteCase(condition="1 > 2", next=following)]
        if self._sure:
            earlier, number = self._chance.choice(list(self._sure.items()))
            again = f"visits.{earlier} < 2 and {earlier} == 'done {number}'"
            cases.append(RouteCase(condition=again, next=earlier))
        self._steps[name] = WorkflowStep(choose=ChooseAction(cases=cases, default=following))

    def _call(self, *tools: str) -> ToolAction:
        chance = self._chance
        arguments = {"n": chance.randrange(1, 30), "seconds": round(chance.expovariate(1.0), 3)}
        return ToolAction(name=chance.choice(tools), arguments=arguments)
