"""A workflow hands a step to a member that works on goals: its answer is the step's result, its end the step's."""

import json
from typing import Any

import msgspec
import pytest

from cadre import tool
from cadre.client import RunCancelled
from cadre.engine.model_request import ModelRequest
from cadre.kinds.goals.records import GoalsSpec
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.kinds import sections
from cadre.testing import Team


@tool(read_only=True)
def count(word: str) -> int:
    """Count letters.

    Args:
        word: Of which.
    """
    return len(word)


SEEKER = AgentSpec(
    name="seeker",
    description="Counts.",
    kind="goals",
    tools=["count"],
    **sections(GoalsSpec(goals=["Know how long the word is."], iterations=3)),
)


def clerk(**step: Any) -> AgentSpec:
    steps = {
        "long": {"agent": {"name": "seeker", "task": "The word is {{ task }}."}, "next": "done", **step},
        "done": {"end": {"output": {"letters": "{{ long }}"}}},
    }
    if step:
        steps["failed"] = {"end": "none: {{ error.type }}"}
    section = msgspec.convert({"start": "long", "steps": steps}, WorkflowSpec)
    return AgentSpec(name="clerk", description="Asks.", kind="workflow", team=["seeker"], **sections(section))


def says(name: str, **args: Any) -> str:
    return json.dumps({"thoughts": {"text": "Hm."}, "tool": {"name": name, "args": args}})


def seeks(request: ModelRequest) -> str:
    asked = "\n".join(str(message["content"]) for message in request.messages)
    assert "One more goal" in asked or "as one more goal" in asked
    return says("finish", response="5") if "Tool count returned: 5" in asked else says("Count", word="heron")


async def test_what_a_goals_agent_answers_is_the_result_of_the_step() -> None:
    async with Team([clerk(), SEEKER], [count], {"seeker": seeks}) as team:
        answer = await team.run("clerk", "heron")
        assert [(one.tool, one.output) for one in team.calls] == [("count", 5)]
        assert len(team.run_ids()) == 2
    assert "5" in answer["letters"]


@pytest.mark.parametrize(("repeats", "error"), [(5, "AgentMaxStepsError"), (2, "LoopDetected")])
async def test_a_goals_agent_that_reaches_nothing_is_an_error_of_the_step(repeats: int, error: str) -> None:
    seeker = msgspec.structs.replace(SEEKER, limits=Limits(repeats=repeats))
    agents = [clerk(on_error="failed"), seeker]
    async with Team(agents, [count], {"seeker": lambda _: "I shall count."}) as team:
        assert await team.run("clerk", "heron") == f"none: {error}"


async def test_a_cancelled_workflow_takes_its_goals_agent_with_it() -> None:
    async with Team(
        [clerk(), msgspec.structs.replace(SEEKER, permission="restricted")], [count], {"seeker": seeks}
    ) as team:
        run = await team.start("clerk", "heron")
        await run.settle()
        assert [call.name for call in run.held] == ["count"]
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        assert team.calls == []
