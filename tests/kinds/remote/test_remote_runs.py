"""What an agent that stands for a remote one decides: its messages, waits, questions, ends."""

from typing import Any

import pytest

from cadre.engine.timers import away_timer
from cadre.journal import events as ev
from cadre.journal.wait_events import WaitStarted
from cadre.kinds.remote.records import RemoteSection, RemoteUpdated
from cadre.protocol.a2a import cancel_tool, get_tool, remote_tools, send_tool
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import ToolCall
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec
from cadre.spec.sections import sections
from kinds.workflow.built import decide
from unit.loop.build import Course, Offer, cancel, kinds, only, result, sent, sound, timer

SEND, GET, CANCEL = send_tool("far"), get_tool("far"), cancel_tool("far")
ANY = {"type": "object"}
OFFER = Offer(
    tools={name: ToolCard(name=name, description="D.", input_schema=ANY) for name in remote_tools("far")}
)


def far(**fields: Any) -> AgentSpec:
    section = RemoteSection(url="http://far.example", **fields)
    return AgentSpec(
        name="far", description="Far.", kind="remote", tools=remote_tools("far"), **sections(section)
    )


def begun(offer: Offer = OFFER, **fields: Any) -> Course:
    return Course(far(**fields), offer).begin("Do it.")


def in_work(course: Course) -> ToolCall:
    """The call that the run waits for."""
    (state,) = course.run.open_calls()
    return next(call for call in sent(course, ToolCall) if call.id == state.id)


def answered(course: Course, **told: Any) -> list[ev.AnyEvent]:
    call = in_work(course)
    return course.arrive(result(call.id, told, tool=call.tool))


def wake(course: Course, seconds: float = 0.0) -> list[ev.AnyEvent]:
    name = list(course.run.waits)[-1]
    course.at = max(course.at, course.run.waits[name].until or 0.0) + seconds
    return course.arrive(timer(f"kind-{name}"))


def working(**fields: Any) -> Course:
    course = begun(**fields)
    answered(course, state="working", task="t1", context="c1")
    return course


def test_a_task_is_sent_and_asked_for_until_it_is_over() -> None:
    course = begun()
    assert in_work(course).arguments == {"message_id": "r1-1", "text": "Do it."}
    events = answered(course, state="working", task="t1", context="c1", said="Reading.")
    assert (only(events, RemoteUpdated).task, only(events, RemoteUpdated).text) == ("t1", "Reading.")
    for _ in range(4):
        wake(course)
        assert (in_work(course).tool, in_work(course).arguments) == (GET, {"task_id": "t1"})
        assert kinds(answered(course, state="working", task="t1", said="Reading.")) == [
            "ToolAnswered",
            "WaitStarted",
        ]
    wake(course)
    end = only(answered(course, state="completed", task="t1", answer={"a": 1}), ev.RunFinished)
    assert (end.state, end.output) == ("success", {"a": 1})
    sound(course)


def test_questions_become_rarer_until_more_than_words_has_changed() -> None:
    course = working(poll=4.0)
    pauses = []
    for state, said in (
        ("working", ""),
        ("working", "Well."),
        *[("working", "")] * 3,
        ("submitted", ""),
        ("", ""),
    ):
        began = course.at
        wake(course)
        pauses.append(course.at - began)
        answered(course, state=state, task="t1", said=said)
    assert pauses == [1.0, 1.5, 2.25, 3.375, 4.0, 4.0, 1.0]


def test_what_was_used_before_the_end_is_the_runs() -> None:
    course = working()
    for read, cost in ((700, 0.25), (900, 0.5)):
        wake(course)
        answered(course, state="working", task="t1", usage={"input_tokens": read, "cost": cost})
        assert (course.run.usage.input_tokens, course.run.usage.cost) == (read, cost)
    wake(course)
    told = {"answer": "Done.", "usage": {"input_tokens": 900, "cost": 0.5}}
    end = only(answered(course, state="completed", task="t1", **told), ev.RunFinished)
    assert (end.usage.input_tokens, end.usage.cost) == (900, 0.5)
    sound(course)


def test_a_budget_counts_all_that_was_used() -> None:
    course = Course(far(), OFFER).begin("Do it.", budget=Budget(cost=1.0))
    for number in (1, 2, 3):
        if number > 1:
            wake(course)
        answered(course, state="working", task="t1", usage={"cost": 0.45 * number})
    assert in_work(course).tool == CANCEL
    answered(course, task="t1", state="canceled")
    assert course.run.result is not None
    assert course.run.result.error is not None
    assert course.run.result.error.type == "BudgetExceeded"


def test_what_is_no_task_ends_the_run() -> None:
    course = begun()
    call = in_work(course)
    end = only(course.arrive(result(call.id, "cut …", tool=call.tool)), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentError")


def test_a_message_that_was_not_answered_is_sent_again_as_it_was() -> None:
    course = begun()
    first = in_work(course).arguments
    answered(course, lost="connection refused")
    wake(course)
    assert (in_work(course).tool, in_work(course).arguments) == (SEND, first)
    answered(course, state="completed", answer="Done.")
    assert course.run.result is not None
    assert course.run.result.state == "success"
    sound(course)


def test_who_stays_away_too_long_has_failed() -> None:
    course = working(absence=60.0)
    wake(course)
    answered(course, lost="connection refused")
    wake(course)
    answered(course, lost="connection refused")
    wake(course, 60.0)
    end = only(answered(course, lost="connection refused"), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentUnreachable")
    sound(course)


def test_an_absence_ends_with_the_next_answer() -> None:
    course = working(absence=60.0)
    wake(course)
    answered(course, lost="connection refused")
    wake(course, 50.0)
    answered(course, state="working", task="t1")
    wake(course)
    events = answered(course, lost="connection refused")
    assert not [one for one in events if isinstance(one, ev.RunFinished)]
    assert course.run.own is not None


def test_an_executor_that_is_not_there_is_waited_for() -> None:
    course = begun(Offer(missing=remote_tools("far")))
    (wait,) = [one for entry in course.journal() for one in entry.events if isinstance(one, WaitStarted)]
    assert wait.until is not None
    course.offer = OFFER
    wake(course)
    assert in_work(course).arguments == {"message_id": "r1-1", "text": "Do it."}
    sound(course)


@pytest.mark.parametrize("begun_before", [False, True])
def test_an_executor_that_is_away_is_waited_for_as_long_as_the_agent_itself(begun_before: bool) -> None:
    course = begun(absence=60.0)
    told = in_work(course).arguments
    events = course.arrive(timer(away_timer(in_work(course).id, begun=begun_before)))
    assert kinds(events)[-2:] == ["WaitStarted", "StepFinished"]
    wake(course)
    assert in_work(course).arguments == told, "the same message, by its id"
    course.at += 60.0
    end = only(course.arrive(timer(away_timer(in_work(course).id, begun=False))), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentUnreachable")
    sound(course)


@pytest.mark.parametrize(
    ("verdict", "feedback", "text"),
    [
        ("approved", "Blue.", "Blue."),
        ("approved", "", "approve"),
        ("rejected", "No time.", "reject: No time."),
    ],
)
def test_a_persons_word_is_the_next_message(verdict: str, feedback: str, text: str) -> None:
    course = working()
    wake(course)
    events = answered(course, state="input_required", task="t1", said="Which colour?")
    held = only(events, ev.ApprovalRequested)
    assert (held.kind, held.reason) == ("question", "Which colour?")
    decide(course, verdict, feedback)
    told = in_work(course).arguments
    assert told == {"message_id": "r1-2", "text": text, "task": {"taskId": "t1", "contextId": "c1"}}
    answered(course, lost="gone")
    wake(course)
    assert in_work(course).arguments == told, "the answer, not the task, is sent again"
    answered(course, state="completed", task="t1", answer="Painted.")
    sound(course)


def test_calls_of_a_cadre_are_decided_by_their_ids() -> None:
    course = working()
    wake(course)
    asked = [{"call": "x.1", "tool": "pay", "arguments": {"amount": 5}}, {"call": "x.2", "tool": "ask_user"}]
    events = answered(course, state="input_required", task="t1", said="May I?", asked=asked)
    assert only(events, ev.ApprovalRequested).reason == 'May I?\npay {"amount":5}\nask_user {}'
    decide(course, "approved", "Fine.")
    assert in_work(course).arguments["data"] == [
        {"call": "x.1", "decision": "approve", "feedback": "Fine."},
        {"call": "x.2", "decision": "correct", "arguments": {"answer": "Fine."}},
    ]


def test_authorization_is_a_persons_affair() -> None:
    course = working()
    wake(course)
    answered(course, state="auth_required", task="t1", said="Sign in.")
    decide(course, "approved")
    wake(course)
    assert in_work(course).tool == GET
    answered(course, state="auth_required", task="t1", said="Sign in.")
    decide(course, "rejected", "Not mine.")
    assert in_work(course).tool == CANCEL
    answered(course, state="canceled", task="t1")
    assert course.run.result is not None
    assert course.run.result.state == "error"
    sound(course)


def test_a_cancelled_run_ends_the_remote_task() -> None:
    course = working()
    course.arrive(cancel())
    assert (in_work(course).tool, in_work(course).arguments) == (CANCEL, {"task_id": "t1"})
    answered(course, lost="gone")
    wake(course)
    end = only(answered(course, state="canceled", task="t1"), ev.RunFinished)
    assert end.state == "cancelled"
    sound(course)


def test_a_run_that_is_cancelled_while_it_sends_ends_what_it_has_begun() -> None:
    course = begun()
    course.arrive(cancel())
    answered(course, state="working", task="t1")
    assert in_work(course).tool == CANCEL
    answered(course, state="canceled", task="t1")
    assert course.run.result is not None
    assert course.run.result.state == "cancelled"
    sound(course)


def test_a_deadline_ends_the_remote_task_too() -> None:
    course = Course(far(), OFFER).begin("Do it.", deadline=200.0)
    answered(course, state="working", task="t1")
    wake(course)
    course.at = 200.0
    course.arrive(timer("deadline"))
    assert in_work(course).tool == CANCEL
    end = only(answered(course, state="canceled", task="t1"), ev.RunFinished)
    assert end.error is not None
    assert end.error.type == "DeadlineExceeded"
    sound(course)


@pytest.mark.parametrize("state", ["failed", "rejected", "canceled"])
def test_a_bad_end_is_told(state: str) -> None:
    course = working()
    wake(course)
    end = only(answered(course, state=state, task="t1", said="Because."), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentFailed")
    assert "Because." in end.error.message
