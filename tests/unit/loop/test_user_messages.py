"""What people say to a run under way: when it is read, what it puts aside, and that its journal tells all of it."""

from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel
from cadre.engine.context.context_budget import weight_of_memory
from cadre.engine.model_request import ChatMessage
from cadre.journal.run import SUMMARY, Phase
from cadre.journal.steps import MessageStep
from cadre.loop.decide import MAX_UNREAD_MESSAGES
from cadre.loop.fork import prefix_of
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Decision, Fork, MessageMode, UserMessage
from cadre.spec.agent import Limits, MemorySpec
from cadre.spec.model import ModelSpec
from unit.loop.build import ANSWER, Course, call, kinds, result, sound, spec

LOOK = call("look", at="sky")
ADD = call("add", a=1, b=2)


def said(text: str = "Be quick.", mode: MessageMode = "append", number: int = 1) -> UserMessage:
    return UserMessage(id=f"m{number}", tree="r1", run="r1", at=2.0, text=text, mode=mode, sender="ann")


def read(course: Course) -> list[ChatMessage]:
    """What the model reads with the call in flight, but for its system prompt."""
    assert course.run.model is not None
    return Transcript(Prompts.load("tool_calling")).request(course.run, course.run.model.purpose).messages[1:]


def told(course: Course) -> list[str]:
    return [step.text for step in course.run.steps if isinstance(step, MessageStep)]


def test_it_is_read_with_the_next_call_behind_what_was_done_meanwhile() -> None:
    course = Course().begin()
    course.say(LOOK)
    assert kinds(course.arrive(said("First."))) == ["MessageReceived"]
    course.arrive(said("Second.", number=2))
    assert told(course) == []
    course.arrive(result(course.id(), 3))
    assert told(course) == ["First.", "Second."]
    assert [one["role"] for one in read(course)] == ["user", "assistant", "tool", "user", "user"]
    assert [one["content"] for one in read(course)][-2:] == ["First.", "Second."]
    course.say(ANSWER)
    sound(course)


def test_what_comes_while_the_model_is_asked_waits_for_the_next_call() -> None:
    course = Course().begin()
    assert kinds(course.arrive(said())) == ["MessageReceived"]
    assert course.owed(since=course.run.entries) == []
    course.say(LOOK)
    course.arrive(result(course.id(), 3))
    assert told(course) == ["Be quick."]
    sound(course)


def test_an_interrupt_asks_anew_at_once_and_the_late_answer_counts_for_nothing() -> None:
    course = Course().begin()
    late = course.run.model
    assert late is not None
    assert kinds(course.arrive(said(mode="interrupt"))) == ["MessageReceived", "ModelCalled"]
    assert course.owed() == [CallModel("act", 1, 2, "m1")]
    assert read(course)[-1] == {"role": "user", "content": "Be quick."}
    events = course.arrive(ev_reply(late.attempt), cause="r1:model:act:1:1")
    assert kinds(events) == ["RecordIgnored"]
    course.say(ANSWER)
    assert course.run.phase is Phase.DONE
    sound(course)


def ev_reply(attempt: int) -> Any:
    from cadre.journal.arrivals import ModelReplied

    return ModelReplied(attempt=attempt, content="", calls=[LOOK])


def test_an_interrupt_while_the_endpoint_asked_for_time_is_read_with_the_next_try() -> None:
    course = Course().begin()
    course.fail("busy", rate_limited=True, retry_after=5.0)
    assert kinds(course.arrive(said(mode="interrupt"))) == ["MessageReceived"]
    course.wake()
    assert told(course) == ["Be quick."]
    sound(course)


@pytest.mark.parametrize("mode", ["next", "interrupt"])
def test_calls_that_have_not_begun_make_way(mode: MessageMode) -> None:
    course = Course(spec(limits=Limits(parallel=1))).begin()
    course.say(LOOK, ADD, ADD)
    events = course.arrive(said(mode=mode))
    assert kinds(events) == ["MessageReceived", "CallRefused", "CallRefused"]
    assert kinds(course.arrive(result(course.id(), 3))) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    contents = [one["content"] for one in read(course)]
    assert [content for content in contents if "was not made" in str(content)]
    assert contents[-1] == "Be quick."
    sound(course)


def test_a_call_that_waits_for_a_person_makes_way_and_the_model_is_asked() -> None:
    course = Course(spec(approvals={"look": "always"})).begin()
    course.say(LOOK)
    held = course.id()
    events = course.arrive(said(mode="next"))
    assert kinds(events) == ["MessageReceived", "CallRefused", "StepFinished", "ModelCalled"]
    decision = Decision(id="d1", tree="r1", run="r1", at=2.0, call=held, verdict="approved")
    assert kinds(course.arrive(decision)) == ["RecordIgnored"]
    sound(course)


def test_appended_it_leaves_calls_that_wait_alone() -> None:
    course = Course(spec(approvals={"look": "always"})).begin()
    course.say(LOOK)
    assert kinds(course.arrive(said())) == ["MessageReceived"]
    assert [one.hold is not None for one in course.run.open_calls()] == [True]


def test_an_answer_that_was_made_without_it_does_not_count() -> None:
    course = Course().begin()
    course.arrive(said("Write it in French."))
    events = course.say(ANSWER)
    assert kinds(events) == ["ModelAnswered", "CallRefused", "StepFinished", "ModelCalled"]
    assert read(course)[-1]["content"] == "Write it in French."
    assert kinds(course.say(ANSWER))[-1] == "RunFinished"
    sound(course)


def test_the_last_step_answers_without_it() -> None:
    course = Course().begin(max_steps=1)
    course.arrive(said())
    assert kinds(course.say(ANSWER))[-1] == "RunFinished"


def test_an_answer_that_its_checks_pass_waits_as_well() -> None:
    course = Course(spec(checks=["look"])).begin()
    course.say(ANSWER)
    (check,) = course.run.open_calls()
    assert kinds(course.arrive(said(mode="next"))) == ["MessageReceived"]
    events = course.arrive(result(check.id, True, tool="look"))
    assert kinds(events)[-1] == "ModelCalled"
    assert told(course) == ["Be quick."]
    sound(course)


def test_it_may_come_before_the_task_and_before_the_memories() -> None:
    course = Course(spec(memory=MemorySpec(recall=1)))
    assert kinds(course.arrive(said("Early."))) == ["MessageReceived"]
    course.begin()
    course.arrive(said("Soon after.", number=2))
    recalling = course.run.recalling
    assert recalling is not None
    course.arrive(result(recalling.call, {"hits": [{"text": "It rained."}]}))
    assert told(course) == ["Early.", "Soon after."]
    assert [one["role"] for one in read(course)] == ["user"] * 4
    sound(course)


def test_the_first_plan_knows_it() -> None:
    course = Course(spec(planning_interval=2))
    course.arrive(said("In French."))
    course.begin()
    assert course.run.model is not None
    assert course.run.model.purpose == "plan"
    request = Transcript(Prompts.load("tool_calling")).request(course.run, "plan")
    assert "In French." in [one["content"] for one in request.messages]


def test_it_counts_in_the_context_and_goes_into_the_summary() -> None:
    course = Course(spec(model=ModelSpec(context=6_000, max_tokens=500))).begin()
    before = course.run.tokens
    course.say(LOOK)
    course.arrive(said("Mind the gap. " * 60))
    course.arrive(result(course.id(), 3))
    assert course.run.tokens >= weight_of_memory(course.run) > before + 100
    for number in range(2, 40):
        if course.run.model is not None and course.run.model.purpose == SUMMARY:
            break
        course.say(LOOK)
        course.arrive(said("And mind the other gap. " * 60, number=number))
        course.arrive(result(course.id(), 3))
    assert course.run.model is not None
    assert course.run.model.purpose == SUMMARY
    (asked,) = Transcript(Prompts.load("tool_calling")).request(course.run, SUMMARY).messages
    assert "Mind the gap." in asked["content"]
    assert kinds(course.arrive(said(mode="interrupt", number=99))) == ["MessageReceived"]
    course.say(content="The gap was minded.")
    assert told(course)[-1] == "Be quick."
    sound(course)


def test_a_fork_remembers_what_was_said_before_its_step() -> None:
    course = Course().begin()
    course.say(LOOK)
    course.arrive(said("One."))
    course.arrive(result(course.id(), 3))
    course.say(ADD)
    course.arrive(said("Two.", number=2))
    course.arrive(result(course.id(), 3))
    for at, known in ((1, []), (2, ["One."]), (3, ["One.", "Two."])):
        steps = prefix_of(course.run, Fork(run="r1", at=at)).steps
        assert [step.text for step in steps if isinstance(step, MessageStep)] == known


def test_so_many_are_kept_and_none_after_the_end() -> None:
    course = Course().begin()
    for number in range(MAX_UNREAD_MESSAGES):
        course.arrive(said(number=number))
    assert kinds(course.arrive(said(number=1000))) == ["RecordIgnored"]
    course.say(ANSWER)
    course.say(ANSWER)
    assert kinds(course.arrive(said(number=1001))) == ["RecordIgnored"]
    sound(course)
