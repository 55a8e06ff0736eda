"""Tests of what an agent that stands for a remote one decides: its messages, waits, questions, ends."""

from typing import Any

import pytest

from cadre.engine.timers import away_timer
from cadre.journal import events as ev
from cadre.journal.events import WaitStarted
from cadre.kinds.remote.records import RemoteSection, RemoteUpdated
from cadre.protocol.a2a import cancel_tool, get_tool, remote_tools, send_tool
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import ToolCall
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from kinds.workflow.built import decide
from unit.loop.build import SimulatedRun, Toolset, cancel, kinds, only, result, sent, sound, timer

SEND, GET, CANCEL = send_tool("far"), get_tool("far"), cancel_tool("far")
ANY = {"type": "object"}
OFFER = Toolset(tools={name: ToolCard(name=name, description="D.", input_schema=ANY) for name in remote_tools("far")})


def far(**fields: Any) -> AgentSpec:
    section = RemoteSection(url="http://far.example", **fields)
    return AgentSpec(name="far", description="Far.", kind="remote", tools=remote_tools("far"), **sections(section))


def begun(toolset: Toolset = OFFER, **fields: Any) -> SimulatedRun:
    return SimulatedRun(far(**fields), toolset).begin("Do it.")


def in_work(sim: SimulatedRun) -> ToolCall:
    """The call that the run waits for."""
    (state,) = sim.run.open_calls()
    return next(call for call in sent(sim, ToolCall) if call.id == state.id)


def answered(sim: SimulatedRun, **told: Any) -> list[ev.AnyEvent]:
    call = in_work(sim)
    return sim.arrive(result(call.id, told, tool=call.tool))


def wake(sim: SimulatedRun, seconds: float = 0.0) -> list[ev.AnyEvent]:
    name = list(sim.run.waits)[-1]
    sim.at = max(sim.at, sim.run.waits[name].until or 0.0) + seconds
    return sim.arrive(timer(f"kind-{name}"))


def working(**fields: Any) -> SimulatedRun:
    sim = begun(**fields)
    answered(sim, state="working", task="t1", context="c1")
    return sim


def test_a_task_is_sent_and_asked_for_until_it_is_over() -> None:
    sim = begun()
    assert in_work(sim).arguments == {"message_id": "r1-1", "text": "Do it."}
    events = answered(sim, state="working", task="t1", context="c1", said="Reading.")
    assert (only(events, RemoteUpdated).task, only(events, RemoteUpdated).text) == ("t1", "Reading.")
    for _ in range(4):
        wake(sim)
        assert (in_work(sim).tool, in_work(sim).arguments) == (GET, {"task_id": "t1"})
        assert kinds(answered(sim, state="working", task="t1", said="Reading.")) == [
            "ToolAnswered",
            "WaitStarted",
        ]
    wake(sim)
    end = only(answered(sim, state="completed", task="t1", answer={"a": 1}), ev.RunFinished)
    assert (end.state, end.output) == ("success", {"a": 1})
    sound(sim)


def test_questions_become_rarer_until_more_than_words_has_changed() -> None:
    sim = working(poll=4.0)
    pauses = []
    for state, said in (
        ("working", ""),
        ("working", "Well."),
        *[("working", "")] * 3,
        ("submitted", ""),
        ("", ""),
    ):
        began = sim.at
        wake(sim)
        pauses.append(sim.at - began)
        answered(sim, state=state, task="t1", said=said)
    assert pauses == [1.0, 1.5, 2.25, 3.375, 4.0, 4.0, 1.0]


def test_what_was_used_before_the_end_is_the_runs() -> None:
    sim = working()
    for read, cost in ((700, 0.25), (900, 0.5)):
        wake(sim)
        answered(sim, state="working", task="t1", usage={"input_tokens": read, "cost": cost})
        assert (sim.run.usage.input_tokens, sim.run.usage.cost) == (read, cost)
    wake(sim)
    told = {"answer": "Done.", "usage": {"input_tokens": 900, "cost": 0.5}}
    end = only(answered(sim, state="completed", task="t1", **told), ev.RunFinished)
    assert (end.usage.input_tokens, end.usage.cost) == (900, 0.5)
    sound(sim)


def test_a_budget_counts_all_that_was_used() -> None:
    sim = SimulatedRun(far(), OFFER).begin("Do it.", budget=Budget(cost=1.0))
    for number in (1, 2, 3):
        if number > 1:
            wake(sim)
        answered(sim, state="working", task="t1", usage={"cost": 0.45 * number})
    assert in_work(sim).tool == CANCEL
    answered(sim, task="t1", state="canceled")
    assert sim.run.result is not None
    assert sim.run.result.error is not None
    assert sim.run.result.error.type == "BudgetExceeded"


def test_what_is_no_task_ends_the_run() -> None:
    sim = begun()
    call = in_work(sim)
    end = only(sim.arrive(result(call.id, "cut …", tool=call.tool)), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentError")


def test_a_message_that_was_not_answered_is_sent_again_as_it_was() -> None:
    sim = begun()
    first = in_work(sim).arguments
    answered(sim, lost="connection refused")
    wake(sim)
    assert (in_work(sim).tool, in_work(sim).arguments) == (SEND, first)
    answered(sim, state="completed", answer="Done.")
    assert sim.run.result is not None
    assert sim.run.result.state == "success"
    sound(sim)


def test_who_stays_away_too_long_has_failed() -> None:
    sim = working(absence=60.0)
    wake(sim)
    answered(sim, lost="connection refused")
    wake(sim)
    answered(sim, lost="connection refused")
    wake(sim, 60.0)
    end = only(answered(sim, lost="connection refused"), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentUnreachable")
    sound(sim)


def test_an_absence_ends_with_the_next_answer() -> None:
    sim = working(absence=60.0)
    wake(sim)
    answered(sim, lost="connection refused")
    wake(sim, 50.0)
    answered(sim, state="working", task="t1")
    wake(sim)
    events = answered(sim, lost="connection refused")
    assert not [one for one in events if isinstance(one, ev.RunFinished)]
    assert sim.run.own is not None


def test_an_executor_that_is_not_there_is_waited_for() -> None:
    sim = begun(Toolset(missing=remote_tools("far")))
    (wait,) = [one for entry in sim.journal() for one in entry.events if isinstance(one, WaitStarted)]
    assert wait.until is not None
    sim.toolset = OFFER
    wake(sim)
    assert in_work(sim).arguments == {"message_id": "r1-1", "text": "Do it."}
    sound(sim)


@pytest.mark.parametrize("begun_before", [False, True])
def test_an_executor_that_is_away_is_waited_for_as_long_as_the_agent_itself(begun_before: bool) -> None:
    sim = begun(absence=60.0)
    told = in_work(sim).arguments
    events = sim.arrive(timer(away_timer(in_work(sim).id, begun=begun_before)))
    assert kinds(events)[-2:] == ["WaitStarted", "StepFinished"]
    wake(sim)
    assert in_work(sim).arguments == told, "the same message, by its id"
    sim.at += 60.0
    end = only(sim.arrive(timer(away_timer(in_work(sim).id, begun=False))), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentUnreachable")
    sound(sim)


@pytest.mark.parametrize(
    ("verdict", "feedback", "text"),
    [
        ("approved", "Blue.", "Blue."),
        ("approved", "", "approve"),
        ("rejected", "No time.", "reject: No time."),
    ],
)
def test_a_persons_word_is_the_next_message(verdict: str, feedback: str, text: str) -> None:
    sim = working()
    wake(sim)
    events = answered(sim, state="input_required", task="t1", said="Which colour?")
    held = only(events, ev.ApprovalRequested)
    assert (held.kind, held.reason) == ("question", "Which colour?")
    decide(sim, verdict, feedback)
    told = in_work(sim).arguments
    assert told == {"message_id": "r1-2", "text": text, "task": {"taskId": "t1", "contextId": "c1"}}
    answered(sim, lost="gone")
    wake(sim)
    assert in_work(sim).arguments == told, "the answer, not the task, is sent again"
    answered(sim, state="completed", task="t1", answer="Painted.")
    sound(sim)


def test_a_question_that_was_answered_is_not_asked_again_while_it_still_shows() -> None:
    sim = working()
    wake(sim)
    first = {"state": "input_required", "task": "t1", "said": "Which colour?", "status_id": "10:00"}
    answered(sim, **first)
    decide(sim, "approved", "Blue.")
    # The remote agent takes the message, and has not gone on yet.
    assert "ApprovalRequested" not in kinds(answered(sim, **(first | {"said": ""})))
    wake(sim)
    assert in_work(sim).tool == GET
    assert "ApprovalRequested" not in kinds(answered(sim, **first))
    wake(sim)
    assert "ApprovalRequested" not in kinds(answered(sim, **(first | {"status_id": ""})))
    wake(sim)
    asked = only(answered(sim, **(first | {"said": "Light?", "status_id": "10:01"})), ev.ApprovalRequested)
    assert asked.reason == "Light?"
    sound(sim)


def test_calls_of_a_cadre_are_decided_by_their_ids() -> None:
    sim = working()
    wake(sim)
    asked = [{"call": "x.1", "tool": "pay", "arguments": {"amount": 5}}, {"call": "x.2", "tool": "ask_user"}]
    events = answered(sim, state="input_required", task="t1", said="May I?", asked=asked)
    assert only(events, ev.ApprovalRequested).reason == 'May I?\npay {"amount":5}\nask_user {}'
    decide(sim, "approved", "Fine.")
    assert in_work(sim).arguments["data"] == [
        {"call": "x.1", "verdict": "approved", "feedback": "Fine."},
        {"call": "x.2", "verdict": "corrected", "arguments": {"answer": "Fine."}},
    ]


def test_authorization_is_a_persons_affair() -> None:
    sim = working()
    wake(sim)
    answered(sim, state="auth_required", task="t1", said="Sign in.")
    decide(sim, "approved")
    wake(sim)
    assert in_work(sim).tool == GET
    answered(sim, state="auth_required", task="t1", said="Sign in.")
    decide(sim, "rejected", "Not mine.")
    assert in_work(sim).tool == CANCEL
    answered(sim, state="canceled", task="t1")
    assert sim.run.result is not None
    assert sim.run.result.state == "error"
    sound(sim)


def test_a_cancelled_run_ends_the_remote_task() -> None:
    sim = working()
    sim.arrive(cancel())
    assert (in_work(sim).tool, in_work(sim).arguments) == (CANCEL, {"task_id": "t1"})
    answered(sim, lost="gone")
    wake(sim)
    end = only(answered(sim, state="canceled", task="t1"), ev.RunFinished)
    assert end.state == "cancelled"
    sound(sim)


def test_a_run_that_is_cancelled_while_it_sends_ends_what_it_has_begun() -> None:
    sim = begun()
    sim.arrive(cancel())
    answered(sim, state="working", task="t1")
    assert in_work(sim).tool == CANCEL
    answered(sim, state="canceled", task="t1")
    assert sim.run.result is not None
    assert sim.run.result.state == "cancelled"
    sound(sim)


def test_a_deadline_ends_the_remote_task_too() -> None:
    sim = SimulatedRun(far(), OFFER).begin("Do it.", deadline=200.0)
    answered(sim, state="working", task="t1")
    wake(sim)
    sim.at = 200.0
    sim.arrive(timer("deadline"))
    assert in_work(sim).tool == CANCEL
    end = only(answered(sim, state="canceled", task="t1"), ev.RunFinished)
    assert end.error is not None
    assert end.error.type == "DeadlineExceeded"
    sound(sim)


@pytest.mark.parametrize("state", ["failed", "rejected", "canceled"])
def test_a_bad_end_is_told(state: str) -> None:
    sim = working()
    wake(sim)
    end = only(answered(sim, state=state, task="t1", said="Because."), ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "RemoteAgentFailed")
    assert "Because." in end.error.message
