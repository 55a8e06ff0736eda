"""`code.observe`: a tool that is called behind each block, whose result is part of what the model reads of it."""

from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.kinds.code.section import CodeSpec, check
from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import ErrorInfo
from cadre.spec.kinds import sections
from harness.texts import holds
from kinds.code.build import ANSWER_WITH_CODE, asks, ended, yielded
from unit.loop.build import ADD, SimulatedRun, kinds, only, result, spec, timer

SEE = ToolCard(name="see", description="Sees.", input_schema={"type": "object", "properties": {}})
WITH_SEE = Toolset(tools={"add": ADD, "see": SEE})
FAILED = ErrorInfo("code-failed", "Code execution failed at line '1 / 0'")


def observing(toolset: Toolset = WITH_SEE, **fields: Any) -> SimulatedRun:
    watched = spec(kind="code", tools=["add", "see"], team=[], **sections(CodeSpec(observe="see")), **fields)
    sim = SimulatedRun(watched, toolset).begin()
    sim.say(content=ANSWER_WITH_CODE)
    return sim


def shot(number: int) -> dict[str, Any]:
    file = {"ref": f"blob:{number:064}", "media_type": "image/png", "name": "s.png", "size": 3}
    return {"page": f"page {number}", "screenshot": {"$file": file}}


def seen(sim: SimulatedRun) -> list[dict[str, Any]]:
    return Transcript(Prompts.load("code")).request(sim.run, "act").messages


def test_a_block_is_observed_when_it_has_ended() -> None:
    sim = observing()
    sim.arrive(yielded(asks("add", a=1, b=2)))
    sim.arrive(result("r1_1_0", 3))
    events = sim.arrive(ended(exchange=1, logs="3\n", text="None", snapshot="blob:aa"))
    assert kinds(events) == ["BlockFinished", "ToolCalled"]
    called = only(events, ev.ToolCalled)
    assert (called.call, called.tool, called.arguments) == ("r1_1_1", "see", {})
    events = sim.arrive(result("r1_1_1", shot(1), tool="see"))
    assert kinds(events) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    text, image = seen(sim)[-1]["content"]
    assert text["text"].startswith("Observation:\nExecution logs:\n3\n")
    assert '\nsee: {"page":"page 1"' in text["text"]
    assert image["image_url"]["url"] == shot(1)["screenshot"]["$file"]["ref"]


def test_a_block_that_failed_is_observed_too_and_fails_the_step() -> None:
    sim = observing()
    assert kinds(sim.arrive(ended(error=FAILED))) == ["BlockFinished", "ToolCalled"]
    events = sim.arrive(result("r1_1_0", "a page", tool="see"))
    assert only(events, ev.StepFinished).error == FAILED
    content = seen(sim)[-1]["content"]
    assert content.index("see: a page") < content.index(FAILED.message)


def test_only_the_latest_images_are_shown() -> None:
    sim = observing()
    for number in range(1, 7):
        block = f"r1:code:{number}"
        sim.arrive(ended(block=block, logs=f"{number}\n"))
        sim.arrive(result(f"r1_{number}_0", shot(number), tool="see"))
        sim.say(content=ANSWER_WITH_CODE)
    shown = [part for one in seen(sim) if isinstance(one["content"], list) for part in one["content"]]
    urls = [part["image_url"]["url"] for part in shown if part["type"] == "image_url"]
    assert urls == [shot(number)["screenshot"]["$file"]["ref"] for number in (3, 4, 5, 6)]
    assert sum("left out now" in part.get("text", "") for part in shown) == 2


def test_what_looks_the_same_for_long_is_observed_all_the_same() -> None:
    sim = observing()
    for number in range(1, 12):
        sim.arrive(ended(block=f"r1:code:{number}", logs=f"{number}\n"))
        events = sim.arrive(result(f"r1_{number}_0", "the same page", tool="see"))
        assert kinds(events) == ["ToolAnswered", "StepFinished", "ModelCalled"]
        sim.say(content=ANSWER_WITH_CODE)


def test_a_tool_that_is_not_there_or_silent_holds_nothing_up() -> None:
    sim = observing(Toolset(tools={"add": ADD}))
    events = sim.arrive(ended(error=FAILED))
    assert kinds(events) == ["BlockFinished", "CallRefused", "StepFinished", "ModelCalled"]
    assert only(events, ev.StepFinished).error == FAILED
    assert "see: " in seen(sim)[-1]["content"]
    sim = observing(timeouts={"see": 5})
    sim.arrive(ended(logs="3\n"))
    events = sim.arrive(timer("call-r1_1_0"))
    assert kinds(events) == ["CallTimedOut", "StepFinished", "ModelCalled"]
    assert "no answer within 5 s" in seen(sim)[-1]["content"]


def test_an_answer_is_not_observed() -> None:
    sim = observing()
    events = sim.arrive(ended(output=3, is_final_answer=True))
    assert kinds(events) == ["BlockFinished", "StepFinished", "RunFinished"]


def test_policies_do_not_hold_it() -> None:
    sim = observing(permission="restricted")
    assert kinds(sim.arrive(ended(logs="3\n"))) == ["BlockFinished", "ToolCalled"]


def test_the_agent_must_have_the_tool() -> None:
    with pytest.raises(SpecError) as refused:
        check(spec(kind="code", **sections(CodeSpec(observe="see"))))
    assert refused.value.key == "code.observe"
    assert holds(refused.value.problem, "'see'", "spec.tools")
