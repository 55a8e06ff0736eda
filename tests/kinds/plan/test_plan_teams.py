"""Plans in whole teams in one process: the study that is shipped, and what a plan does when its processes die."""

import json
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cadre import tool
from cadre.engine.model_request import ModelRequest
from cadre.journal.events import EditApplied, EditRefused
from cadre.kinds.plan.section import PlanSpec, PlanStep
from cadre.spec.agent import AgentSpec as Agent
from cadre.spec.kinds import sections
from cadre.testing import Team, answer, crash_points

STUDY = Path(__file__).parents[3] / "teams" / "study"
PAID: list[float] = []
FAILS: list[str] = []


@tool(idempotent=True)
async def look(at: str) -> str:
    """Looks.

    Args:
        at: Where.
    """
    if at in FAILS:
        raise ValueError("there is fog")
    return f"{at} is blue"


@tool
async def pay(amount: float) -> str:
    """Pays.

    Args:
        amount: Euros.
    """
    PAID.append(amount)
    return "paid"


CLERK = Agent(
    name="clerk",
    description="Looks and pays.",
    kind="plan",
    tools=["look", "pay"],
    **sections(
        PlanSpec(
            steps=[
                PlanStep(step=1, action="look", args={"at": "sky"}, needs=[]),
                PlanStep(step=2, action="look", args={"at": "sea"}, needs=[]),
                PlanStep(step=3, action="pay", args={"amount": 12.5}, needs=[1, 2]),
                PlanStep(step=4, task="Say {{ step_1 }}, and {{ step_3 }}.", needs=[3]),
            ]
        )
    ),
)


ANEW = json.dumps(
    {
        "steps": [
            {"step": 5, "action": "look", "args": {"at": "hill"}, "needs": []},
            {"step": 6, "task": "Say {{ step_5 }}."},
        ]
    }
)


def model(request: ModelRequest) -> Any:
    """Plans again when it is asked to; what it carries out itself it just says."""
    return ANEW if "Plan anew" in str(request.messages[-1]["content"]) else answer("done")


def team() -> Team:
    PAID.clear()
    return Team([CLERK], [look, pay], model)


async def test_a_plan_survives_the_death_of_its_processes() -> None:
    FAILS.clear()
    async for outcome in crash_points(team, lambda one: one.run("clerk", "Look and pay.")):
        assert outcome.value == "done"
        assert len(PAID) <= 1


async def test_a_plan_that_is_made_anew_survives_it_too() -> None:
    FAILS[:] = ["sky"]
    async for outcome in crash_points(team, lambda one: one.run("clerk", "Look and pay.")):
        assert outcome.value == "done"
        assert PAID == []


async def test_a_plan_is_edited_while_a_step_waits() -> None:
    FAILS.clear()
    held = msgspec.structs.replace(CLERK, approvals={"pay": "always"})
    async with Team([held], [look, pay], model) as deployment:
        PAID.clear()
        run = await deployment.start("clerk", "Look and pay.")
        await run.settle()
        plan = run.editable()
        states = [step["state"] for step in plan.state["steps"]]
        assert (plan.version, states) == (1, ["done", "done", "waiting", "pending"])
        dear = {"action": "look", "args": {"at": "hill"}, "needs": [3]}
        await run.edit(plan, [{"op": "add", "step": dear}, {"op": "drop", "step": 4}])
        await run.edit(plan, [{"op": "drop", "step": 5}])
        await run.settle()
        await run.edit(run.editable(), [{"op": "drop", "step": 3}])
        await run.settle()
        await run.approve()
        assert await run.result() == "hill is blue"
        assert PAID == [12.5]
        edits = [event for event in run.events if isinstance(event, EditApplied | EditRefused)]
        assert [getattr(event, "version", None) for event in edits] == [None, 2, 2]
        assert isinstance(edits[2], EditRefused)
        assert "step 3 has begun already" in edits[2].reason


@pytest.mark.parametrize("station", ["bay", "quay"])
def test_the_data_of_the_study_are_whole(station: str) -> None:
    tools = runpy.run_path(str(STUDY / "tools.py"))
    assert tools["measure"](station)["millimetres"] > 0
