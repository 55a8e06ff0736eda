"""Whole runs of agents that propose solutions: every form that an endpoint may have, answers that are almost right, and
a death behind every record of a run that a person corrects."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cadre import tool
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused
from cadre.kinds.solution.records import SolutionSpec
from cadre.protocol.messages import CallEdit
from cadre.spec.agent import AgentSpec as Agent
from cadre.spec.kinds import sections
from cadre.testing import ModelReply, RunFailed, Team, crash_points
from harness.texts import holds

SCHEMA = {
    "type": "object",
    "properties": {"paid": {"type": "number"}, "state": {"enum": ["done", "refused"]}},
    "required": ["paid", "state"],
    "additionalProperties": False,
}
RIGHT = {"paid": 12.5, "state": "done"}
PAID: set[float] = set()


@tool(idempotent=True)
async def pay(amount: float) -> str:
    """Pay an amount.

    Args:
        amount: Euros.
    """
    PAID.add(amount)
    return f"paid {amount}"


def solution(*calls: Any, output: Any = None) -> str:
    return json.dumps({"solution": {"calls": [*calls], "output": output}})


PAY = {"name": "pay", "arguments": {"amount": 12.5}}
FORGIVEN = {
    "extra prose": f"I would do this: {solution(PAY)} Shall I?",
    "a fence": f"```json\n{solution(PAY)}\n```",
    "a trailing comma": solution(PAY).replace("}]", "},]"),
    "one call in place of a list": json.dumps({"solution": {"calls": PAY, "output": None}}),
    "no solution around it": json.dumps({"calls": [PAY]}),
}
WRONG = {
    "a missing key": json.dumps({"solution": {"calls": [{"arguments": {"amount": 12.5}}]}}),
    "nothing at all": solution(),
    "an enum's other value": solution(output={"paid": 12.5, "state": "fine"}),
    "an output without a key": solution(output={"paid": 12.5}),
    "prose": "I have paid.",
}


class Endpoint:
    """A model endpoint that takes one form of request, and answers `first` until it reads what is wrong."""

    def __init__(self, form: str, first: str, *, learns: bool) -> None:
        self._form, self._first, self._learns = form, first, learns
        self._answers = 0

    def __call__(self, request: ModelRequest) -> ModelReply:
        if (request.schema is not None and self._form != "schema") or (request.json_object and self._form == "prompt"):
            raise ModelRefused("status 400: response_format is not supported", about_form=True)
        assert request.schema is not None or "fits this schema" in str(request.messages[0]["content"])
        self._answers += 1
        if self._answers == 1 or not self._learns:
            return ModelReply(content=self._first)
        return ModelReply(content=solution(output=RIGHT))


def auditor(**fields: Any) -> Agent:
    section = SolutionSpec(tries=3, **fields)
    return Agent(
        name="auditor",
        description="Pays.",
        kind="solution",
        tools=["pay"],
        output_schema=SCHEMA,
        **sections(section),
    )


@pytest.mark.parametrize("form", ["schema", "object", "prompt"])
@pytest.mark.parametrize("way", [*FORGIVEN, *WRONG])
async def test_almost_right_in_every_form_of_endpoint(form: str, way: str) -> None:
    PAID.clear()
    first = (FORGIVEN | WRONG)[way]
    async with Team([auditor()], [pay], Endpoint(form, first, learns=True)) as team:
        assert await team.run("auditor", "Pay.") == RIGHT
        # The endpoint's refusals, the first answer, and the right one: nothing is asked twice.
        assert len(team.requests) == ["schema", "object", "prompt"].index(form) + 2
    assert ({12.5} if way in FORGIVEN else set()) == PAID


@pytest.mark.parametrize("form", ["schema", "object", "prompt"])
@pytest.mark.parametrize("way", [*WRONG])
async def test_what_is_always_wrong_ends_the_run_after_a_few_tries(form: str, way: str) -> None:
    async with Team([auditor()], [pay], Endpoint(form, WRONG[way], learns=False)) as team:
        with pytest.raises(RunFailed):
            await team.run("auditor", "Pay.")
        assert len(team.requests) == ["schema", "object", "prompt"].index(form) + 3


def answers(told: Callable[[str], None]) -> Callable[[ModelRequest], ModelReply]:
    def answer(request: ModelRequest) -> ModelReply:
        last = str(request.messages[-1]["content"])
        if "paid " not in last:
            return ModelReply(content=solution(PAY, {"name": "pay", "arguments": {"amount": 99.0}}))
        told(last)
        return ModelReply(content=solution(output={"paid": 10.0, "state": "done"}))

    return answer


async def test_a_corrected_run_survives_every_death() -> None:
    read: list[str] = []

    async def play(team: Team) -> Any:
        run = await team.start("auditor", "Pay.")
        edits = [CallEdit(call=1, arguments={"amount": 10.0}), CallEdit(call=2, drop=True)]
        await run.approve(edits=edits, feedback="Not that much.")
        return await run.result()

    def make() -> Team:
        PAID.clear()
        read.clear()
        return Team([auditor(approve="always")], [pay], answers(read.append))

    points = 0
    async for outcome in crash_points(make, play):
        points += 1
        assert outcome.value == {"paid": 10.0, "state": "done"}, outcome.after
        assert {10.0} == PAID, outcome.after
        assert holds(read[-1], '{"amount":10.0}', "Not that much.")
    assert points >= 8
