"""Tests of what people say to a run under way: when it is read, what it puts aside, and that its journal reports all of
it."""

from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel
from cadre.engine.context.context_budget import weight_of_memory
from cadre.engine.model_request import ChatMessage
from cadre.journal.run import SUMMARY, MessageStep, Phase
from cadre.loop.decide import MAX_UNREAD_MESSAGES
from cadre.loop.fork import prefix_of
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Decision, Fork, MessageMode, UserMessage
from cadre.spec.agent import Limits, MemorySpec
from cadre.spec.model import ModelSpec
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, result, sound, spec

LOOK = call("look", at="sky")
ADD = call("add", a=1, b=2)


def said(text: str = "Be quick.", mode: MessageMode = "append", number: int = 1) -> UserMessage:
    return UserMessage(id=f"m{number}", tree="r1", run="r1", at=2.0, text=text, mode=mode, sender="ann")


def read(sim: SimulatedRun) -> list[ChatMessage]:
    """Return what the model reads with the call in flight, but for its system prompt."""
    assert sim.run.model is not None
    return Transcript(Prompts.load("tool_calling")).request(sim.run, sim.run.model.purpose).messages[1:]


def told(sim: SimulatedRun) -> list[str]:
    return [step.text for step in sim.run.steps if isinstance(step, MessageStep)]


def test_it_is_read_with_the_next_call_behind_what_was_done_meanwhile() -> None:
    sim = SimulatedRun().begin()
    sim.say(LOOK)
    assert kinds(sim.arrive(said("First."))) == ["MessageReceived"]
    sim.arrive(said("Second.", number=2))
    assert told(sim) == []
    sim.arrive(result(sim.id(), 3))
    assert told(sim) == ["First.", "Second."]
    assert [one["role"] for one in read(sim)] == ["user", "assistant", "tool", "user", "user"]
    assert [one["content"] for one in read(sim)][-2:] == ["First.", "Second."]
    sim.say(ANSWER)
    sound(sim)


def test_what_comes_while_the_model_is_asked_waits_for_the_next_call() -> None:
    sim = SimulatedRun().begin()
    assert kinds(sim.arrive(said())) == ["MessageReceived"]
    assert sim.owed(since=sim.run.entries) == []
    sim.say(LOOK)
    sim.arrive(result(sim.id(), 3))
    assert told(sim) == ["Be quick."]
    sound(sim)


def test_an_interrupt_asks_anew_at_once_and_the_late_answer_counts_for_nothing() -> None:
    sim = SimulatedRun().begin()
    late = sim.run.model
    assert late is not None
    assert kinds(sim.arrive(said(mode="interrupt"))) == ["MessageReceived", "ModelCalled"]
    assert sim.owed() == [CallModel("act", 1, 2, "m1")]
    assert read(sim)[-1] == {"role": "user", "content": "Be quick."}
    events = sim.arrive(ev_reply(late.attempt), cause="r1:model:act:1:1")
    assert kinds(events) == ["RecordIgnored"]
    sim.say(ANSWER)
    assert sim.run.phase is Phase.DONE
    sound(sim)


def ev_reply(attempt: int) -> Any:
    from cadre.journal.arrivals import ModelReplied

    return ModelReplied(attempt=attempt, content="", calls=[LOOK])


def test_an_interrupt_while_the_endpoint_asked_for_time_is_read_with_the_next_try() -> None:
    sim = SimulatedRun().begin()
    sim.fail("busy", rate_limited=True, retry_after=5.0)
    assert kinds(sim.arrive(said(mode="interrupt"))) == ["MessageReceived"]
    sim.wake()
    assert told(sim) == ["Be quick."]
    sound(sim)


@pytest.mark.parametrize("mode", ["next", "interrupt"])
def test_calls_that_have_not_begun_make_way(mode: MessageMode) -> None:
    sim = SimulatedRun(spec(limits=Limits(parallel=1))).begin()
    sim.say(LOOK, ADD, ADD)
    events = sim.arrive(said(mode=mode))
    assert kinds(events) == ["MessageReceived", "CallRefused", "CallRefused"]
    assert kinds(sim.arrive(result(sim.id(), 3))) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    contents = [one["content"] for one in read(sim)]
    assert [content for content in contents if "was not made" in str(content)]
    assert contents[-1] == "Be quick."
    sound(sim)


def test_a_call_that_waits_for_a_person_makes_way_and_the_model_is_asked() -> None:
    sim = SimulatedRun(spec(approvals={"look": "always"})).begin()
    sim.say(LOOK)
    held = sim.id()
    events = sim.arrive(said(mode="next"))
    assert kinds(events) == ["MessageReceived", "CallRefused", "StepFinished", "ModelCalled"]
    decision = Decision(id="d1", tree="r1", run="r1", at=2.0, call=held, verdict="approved")
    assert kinds(sim.arrive(decision)) == ["RecordIgnored"]
    sound(sim)


def test_appended_it_leaves_calls_that_wait_alone() -> None:
    sim = SimulatedRun(spec(approvals={"look": "always"})).begin()
    sim.say(LOOK)
    assert kinds(sim.arrive(said())) == ["MessageReceived"]
    assert [one.hold is not None for one in sim.run.open_calls()] == [True]


def test_an_answer_that_was_made_without_it_does_not_count() -> None:
    sim = SimulatedRun().begin()
    sim.arrive(said("Write it in French."))
    events = sim.say(ANSWER)
    assert kinds(events) == ["ModelAnswered", "CallRefused", "StepFinished", "ModelCalled"]
    assert read(sim)[-1]["content"] == "Write it in French."
    assert kinds(sim.say(ANSWER))[-1] == "RunFinished"
    sound(sim)


def test_the_last_step_answers_without_it() -> None:
    sim = SimulatedRun().begin(max_steps=1)
    sim.arrive(said())
    assert kinds(sim.say(ANSWER))[-1] == "RunFinished"


def test_an_answer_that_its_checks_pass_waits_as_well() -> None:
    sim = SimulatedRun(spec(checks=["look"])).begin()
    sim.say(ANSWER)
    (check,) = sim.run.open_calls()
    assert kinds(sim.arrive(said(mode="next"))) == ["MessageReceived"]
    events = sim.arrive(result(check.id, True, tool="look"))
    assert kinds(events)[-1] == "ModelCalled"
    assert told(sim) == ["Be quick."]
    sound(sim)


def test_it_may_come_before_the_task_and_before_the_memories() -> None:
    sim = SimulatedRun(spec(memory=MemorySpec(recall=1)))
    assert kinds(sim.arrive(said("Early."))) == ["MessageReceived"]
    sim.begin()
    sim.arrive(said("Soon after.", number=2))
    recalling = sim.run.recalling
    assert recalling is not None
    sim.arrive(result(recalling.call, {"hits": [{"text": "It rained."}]}))
    assert told(sim) == ["Early.", "Soon after."]
    assert [one["role"] for one in read(sim)] == ["user"] * 4
    sound(sim)


def test_the_first_plan_knows_it() -> None:
    sim = SimulatedRun(spec(planning_interval=2))
    sim.arrive(said("In French."))
    sim.begin()
    assert sim.run.model is not None
    assert sim.run.model.purpose == "plan"
    request = Transcript(Prompts.load("tool_calling")).request(sim.run, "plan")
    assert "In French." in [one["content"] for one in request.messages]


def test_it_counts_in_the_context_and_goes_into_the_summary() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(context=5_500, max_tokens=500))).begin()
    before = sim.run.tokens
    sim.say(LOOK)
    sim.arrive(said("Mind the gap. " * 60))
    sim.arrive(result(sim.id(), 3))
    assert sim.run.tokens >= weight_of_memory(sim.run) > before + 100
    for number in range(2, 40):
        if sim.run.model is not None and sim.run.model.purpose == SUMMARY:
            break
        sim.say(LOOK)
        sim.arrive(said("And mind the other gap. " * 60, number=number))
        sim.arrive(result(sim.id(), 3))
    assert sim.run.model is not None
    assert sim.run.model.purpose == SUMMARY
    (asked,) = Transcript(Prompts.load("tool_calling")).request(sim.run, SUMMARY).messages
    assert "Mind the gap." in asked["content"]
    assert kinds(sim.arrive(said(mode="interrupt", number=99))) == ["MessageReceived"]
    sim.say(content="The gap was minded.")
    assert told(sim)[-1] == "Be quick."
    sound(sim)


def test_a_fork_remembers_what_was_said_before_its_step() -> None:
    sim = SimulatedRun().begin()
    sim.say(LOOK)
    sim.arrive(said("One."))
    sim.arrive(result(sim.id(), 3))
    sim.say(ADD)
    sim.arrive(said("Two.", number=2))
    sim.arrive(result(sim.id(), 3))
    for at, known in ((1, []), (2, ["One."]), (3, ["One.", "Two."])):
        steps = prefix_of(sim.run, Fork(run="r1", at=at)).steps
        assert [step.text for step in steps if isinstance(step, MessageStep)] == known


def test_so_many_are_kept_and_none_after_the_end() -> None:
    sim = SimulatedRun().begin()
    for number in range(MAX_UNREAD_MESSAGES):
        sim.arrive(said(number=number))
    assert kinds(sim.arrive(said(number=1000))) == ["RecordIgnored"]
    sim.say(ANSWER)
    sim.say(ANSWER)
    assert kinds(sim.arrive(said(number=1001))) == ["RecordIgnored"]
    sound(sim)
