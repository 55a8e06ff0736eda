"""Calls that lead nowhere are refused, and a run that makes nothing else ends."""

import json

import msgspec
import pytest

from cadre.journal import events as ev
from cadre.kinds.code.section import CodeSpec
from cadre.protocol.cards import AgentCard
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import Limits
from cadre.spec.kinds import sections
from kinds.code.build import asks, coder, ended, yielded
from unit.loop.build import OFFER, SimulatedRun, call, kinds, only, report, result, spec


def guarded(repeats: int = 2, max_steps: int = 50) -> SimulatedRun:
    return SimulatedRun(spec(limits=Limits(repeats=repeats, max_steps=max_steps))).begin()


def test_the_same_call_with_the_same_result_is_refused_in_the_end() -> None:
    sim = guarded()
    for step in (1, 2):
        assert "ToolCalled" in kinds(sim.say(call("add", a=1, b=1)))
        sim.arrive(result(f"r1_{step}_0", 2))
    refused = only(sim.say(call("add", b=1, a=1)), ev.CallRefused)
    assert refused.error.type == "LoopDetected"
    assert "called 2 times" in refused.error.message
    assert "ToolCalled" in kinds(sim.say(call("add", a=1, b=2))), "other arguments are another call"


def test_a_result_that_changes_is_progress() -> None:
    sim = guarded()
    for step in range(1, 8):
        assert "ToolCalled" in kinds(sim.say(call("add", a=1, b=1)))
        sim.arrive(result(f"r1_{step}_0", step))


def test_an_error_that_repeats_counts_as_well_and_so_does_a_member() -> None:
    sim = guarded(3)
    for step in (1, 2, 3):
        sim.say(call("add", a=1, b=1), call("kid", task="x"))
        sim.arrive(result(f"r1_{step}_0", error=ErrorInfo("tool-failed", "boom")))
        sim.arrive(report(f"r1_{step}_1", "ask somebody else"))
    events = sim.say(call("add", a=1, b=1), call("kid", task="x"))
    assert [event.error.type for event in events if isinstance(event, ev.CallRefused)] == ["LoopDetected"] * 2


def test_a_model_that_does_not_listen_ends_its_run() -> None:
    sim = guarded()
    for step in (1, 2):
        sim.say(call("add", a=1, b=1))
        sim.arrive(result(f"r1_{step}_0", 2))
    sim.say(call("add", a=1, b=1))
    end = only(sim.say(call("add", a=1, b=1)), ev.RunFinished)
    assert (end.state, end.error.type) == ("error", "LoopDetected")
    assert "add: 2" in end.output


def test_zero_lets_a_model_ask_as_often_as_it_likes() -> None:
    sim = guarded(repeats=0)
    for step in range(1, 20):
        assert "ToolCalled" in kinds(sim.say(call("add", a=1, b=1)))
        sim.arrive(result(f"r1_{step}_0", 2))


def test_parallel_copies_of_one_call_are_all_made() -> None:
    sim = guarded()
    events = sim.say(*(call("add", a=1, b=1) for _ in range(9)))
    assert kinds(events).count("ToolCalled") == 9


def test_what_is_remembered_is_bounded() -> None:
    sim = guarded(max_steps=100)
    for step in range(1, 60):
        sim.say(call("add", a=step, b=1))
        sim.arrive(result(f"r1_{step}_0", step))
    assert len(sim.run.repeated) == 32
    sim.say(call("add", a=59, b=1))
    sim.arrive(result("r1_60_0", 59))
    assert "CallRefused" in kinds(sim.say(call("add", a=59, b=1)))


def test_a_call_that_is_refused_alike_is_a_circle_too() -> None:
    sim = guarded()
    for _ in (1, 2):
        refused = only(sim.say(call("add", a="one", b=1)), ev.CallRefused)
        assert refused.error.type != "LoopDetected"
    assert only(sim.say(call("add", a="one", b=1)), ev.CallRefused).error.type == "LoopDetected"
    assert "ToolCalled" in kinds(sim.say(call("add", a=1, b=1))), "the right arguments are another call"


def test_an_answer_that_fails_alike_ends_the_run() -> None:
    sim = guarded(3)
    for _ in (1, 2):
        assert "ModelCalled" in kinds(sim.say(content="I am thinking."))
    events = sim.say(content="I am thinking.")
    assert kinds(events) == ["ModelAnswered", "StepFinished", "RunFinished"]
    end = only(events, ev.RunFinished)
    assert (end.state, end.error.code) == ("error", "loop")
    assert "3" in end.error.message


@pytest.mark.parametrize("structured", [False, True])
def test_other_words_around_the_same_code_are_no_other_deed(structured: bool) -> None:
    sim = coder(limits=Limits(repeats=3), **sections(CodeSpec(structured=structured))).begin()
    for step in (1, 2, 3):
        thought = json.dumps({"thought": f"Try {step}.", "code": "weigh()"})
        sim.say(content=thought if structured else f"Try {step}.\n<code>\nweigh()\n</code>")
        unknown = ErrorInfo("tool-failed", "NameError: weigh")
        events = sim.arrive(ended(block=f"r1:code:{step}", error=unknown))
    end = only(events, ev.RunFinished)
    assert end.error.type == "LoopDetected"


def test_code_that_polls_counts_as_one_call() -> None:
    sim = coder(limits=Limits(repeats=3)).begin()
    for step in (1, 2, 3):
        sim.say(content="Thought: poll.\n<code>\nwhile add(a=1, b=1): pass\n</code>")
        block = f"r1:code:{step}"
        for number in range(9):
            events = sim.arrive(yielded(asks("add", a=1, b=1), exchange=number, block=block))
            assert "ToolCalled" in kinds(events)
            sim.arrive(result(f"r1_{step}_{number}", 2))
        sim.arrive(ended(exchange=9, block=block))
    sim.say(content="Thought: poll.\n<code>\nwhile add(a=1, b=1): pass\n</code>")
    refused = only(sim.arrive(yielded(asks("add", a=1, b=1), block="r1:code:4")), ev.CallRefused)
    assert "called 3 times" in refused.error.message


def poll(sim: SimulatedRun, steps: range) -> list[ev.AnyEvent]:
    """Return what becomes of the last of these calls of one status, which is always the same."""
    events: list[ev.AnyEvent] = []
    for step in steps:
        events = sim.say(call("add", a=1, b=1))
        if "ToolCalled" in kinds(events):
            sim.arrive(result(f"r1_{step}_0", 2))
    return events


def waiter(name: str = "wait_for_payment", version: int = 0) -> SimulatedRun:
    card = msgspec.structs.replace(OFFER.tools["look"], name=name)
    toolset = msgspec.structs.replace(OFFER, tools={**OFFER.tools, name: card})
    tools = ["add", "look", name]
    sim = SimulatedRun(spec(tools=tools, limits=Limits(repeats=3, max_steps=50)), toolset).begin()
    sim.run.kind_version = version or sim.run.kind_version
    return sim


def test_the_refusal_says_how_to_wait_and_behind_it_one_may_ask_again() -> None:
    sim = waiter()
    refused = only(poll(sim, range(1, 5)), ev.CallRefused)
    assert "'wait_for_payment'" in refused.error.message
    for step in range(5, 15, 2):
        assert "ToolCalled" in kinds(sim.say(call("wait_for_payment", at="soon"))), "it is never refused"
        sim.arrive(result(f"r1_{step}_0", "nothing yet", tool="wait_for_payment"))
        assert "ToolCalled" in kinds(poll(sim, range(step + 1, step + 2)))


@pytest.mark.parametrize("name", ["look_up", "await_nothing", "waiter"])
def test_without_a_way_to_wait_none_is_named(name: str) -> None:
    assert "wait" not in only(poll(waiter(name), range(1, 5)), ev.CallRefused).error.message


def test_code_is_told_how_to_wait_as_well() -> None:
    sim = coder(team=["wait_for_payment"], limits=Limits(repeats=2))
    sim.toolset = msgspec.structs.replace(
        OFFER, members={"wait_for_payment": AgentCard(name="wait_for_payment", description="Waits.")}
    )
    sim.begin()
    for step in (1, 2, 3):
        sim.say(content=f"<code>\nx{step} = add(a=1, b=1)\n</code>")
        events = sim.arrive(yielded(asks("add", a=1, b=1), block=f"r1:code:{step}"))
        if step < 3:
            sim.arrive(result(f"r1_{step}_0", 2))
            sim.arrive(ended(exchange=1, block=f"r1:code:{step}"))
    assert "call 'wait_for_payment' first" in only(events, ev.CallRefused).error.message


def test_other_words_or_a_step_without_an_error_begin_anew() -> None:
    sim = guarded(3)
    for said in ("a", "a", "b", "b", "a", "a"):
        assert "ModelCalled" in kinds(sim.say(content=said))
    sim.say(call("add", a=1, b=1))
    sim.arrive(result(f"r1_{sim.run.step}_0", 2))
    for _ in (1, 2):
        assert "ModelCalled" in kinds(sim.say(content="a"))
