"""Tests of what an endpoint gives next to text and calls: read again by the model that it came from, and by no
summary."""

from typing import Any

import pytest

from cadre.engine.chat import Transcript, as_text, in_summary
from cadre.engine.model_request import ModelRequest
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.run import SUMMARY
from cadre.prompting.prompts import Prompts
from cadre.protocol.usage import Usage
from cadre.spec.model import ModelSpec
from unit.loop.build import SimulatedRun, call, only, result, sound, spec

PROMPTS = Prompts.load("tool_calling")
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "moss " * 50}}
ITEMS = [SEARCH, {"type": "message", "id": "msg_1"}, {"type": "function_call", "id": "fc_1"}]


def answer(sim: SimulatedRun, **fields: Any) -> list[ev.AnyEvent]:
    assert sim.run.model is not None
    usage = Usage(input_tokens=90_000, output_tokens=1)
    asked = ModelReplied(
        attempt=sim.run.model.attempt, content="So.", calls=[call("add", a=1, b=2)], usage=usage, **fields
    )
    return sim.arrive(asked)


def request(sim: SimulatedRun) -> ModelRequest:
    assert sim.run.model is not None
    return Transcript(PROMPTS).request(sim.run, sim.run.model.purpose)


def test_items_are_journaled_and_stand_beside_the_message_of_their_answer() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(name="first", fallbacks=[ModelSpec(name="second")]))).begin()
    sim.fail("bad key", final=True)
    fields = {"items": ITEMS, "cached_tokens": 7, "reasoning_tokens": 3, "endpoint": "chat:host/second"}
    answered = only(answer(sim, **fields), ev.ModelAnswered)
    assert (answered.items, answered.cached_tokens, answered.reasoning_tokens) == (ITEMS, 7, 3)
    sim.arrive(result(sim.id(), 3))
    said = request(sim).messages[-2]
    assert (said["role"], said["items"], said["items_of"]) == ("assistant", ITEMS, "chat:host/second")
    for rewritten in (as_text([said]), in_summary(sim.run.steps[-1], [said])):
        assert "items" not in rewritten[0]
    sound(sim)


def test_what_native_tools_have_read_is_not_taken_for_the_size_of_the_request() -> None:
    counted = {}
    for name, items in (("plain", []), ("native", ITEMS)):
        sim = SimulatedRun().begin()
        before = sim.run.tokens
        answer(sim, items=items)
        counted[name] = (sim.run.counted, sim.run.tokens - before)
    assert counted["plain"][0] is not None
    assert counted["native"][0] is None
    assert counted["native"][1] > counted["plain"][1] + 50


def test_the_endpoints_own_tools_are_on_offer_for_the_work_and_for_no_summary() -> None:
    sim = SimulatedRun().begin()
    answer(sim)
    sim.arrive(result(sim.id(), 3))
    assert request(sim).native_tools
    assert not Transcript(PROMPTS).request(sim.run, SUMMARY).native_tools


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"api": "responses", "seed": 7}, r"model\.seed"),
        ({"native_tools": [{"kind": "web_search"}]}, r"model\.native_tools\[0\]: .*\btype\b"),
        (
            {"native_tools": [{"type": "web_search"}, {"type": "function", "name": "add"}]},
            r"native_tools\[1\]: function: ",
        ),
        ({"native_tools": [{"type": "computer"}]}, r"native_tools\[0\]: computer: "),
        ({"native_tools": [{"type": "mcp", "server_label": "x"}]}, "require_approval: never"),
        ({"native_tools": [{"type": "shell", "environment": {"type": "local"}}]}, "take a container"),
        (
            {"fallbacks": [ModelSpec(name="b", native_tools=[{"type": "custom"}])]},
            r"fallbacks\[0\]\.native_tools\[0\]: custom",
        ),
    ],
)
def test_what_no_endpoint_could_do_is_refused_with_the_spec(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        spec(model=ModelSpec(name="a", **fields))
    spec(model=ModelSpec(name="a", native_tools=[{"type": "mcp", "require_approval": "never"}]))
