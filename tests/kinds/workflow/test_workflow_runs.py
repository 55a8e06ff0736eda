"""Runs of workflows, story by story."""

from typing import Any

import pytest

from cadre.engine.commands import SetTimer
from cadre.engine.timers import away_timer
from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.protocol.messages import ErrorInfo, Signal
from harness.texts import holds
from kinds.workflow.built import decide, entered, run_of, workflow
from unit.loop.build import (
    OFFER,
    SimulatedRun,
    Toolset,
    call,
    cancel,
    kinds,
    only,
    report,
    result,
    sound,
    timer,
)

LOOK = {"tool": {"name": "look", "arguments": {"at": "{{ task }}"}}}
BUSY = ErrorInfo("tool-failed", "busy")
GONE = ErrorInfo("tool-failed", "gone")
ADD = {"tool": {"name": "add", "arguments": {"a": "{{ seen.a }}", "b": 2}}}


def end_of(sim: SimulatedRun) -> ev.RunFinished:
    end = sim.journal()[-1].events[-1]
    assert isinstance(end, ev.RunFinished)
    return end


def error_of(sim: SimulatedRun) -> ErrorInfo:
    error = end_of(sim).error
    assert error is not None
    return error


def test_two_tools_follow_each_other_without_a_model() -> None:
    sim = run_of(workflow("seen", seen={**LOOK, "next": "sum"}, sum=ADD), "the sky")
    first = sim.journal()[0].events
    assert kinds(first) == ["RunAccepted", "ToolsetChanged", "StepStarted", "ToolCalled"]
    assert first[-1].arguments == {"at": "the sky"}  # type: ignore[attr-defined]
    second = sim.arrive(result(sim.id(), {"a": 40}, tool="look"))
    assert kinds(second) == [
        "ToolAnswered",
        "WorkflowStepFinished",
        "StepFinished",
        "StepStarted",
        "ToolCalled",
    ]
    assert second[-1].arguments == {"a": 40, "b": 2}  # type: ignore[attr-defined]
    sim.arrive(result(sim.id(), 42))
    assert (end_of(sim).state, end_of(sim).output, end_of(sim).steps) == ("success", 42, 2)
    assert sim.run.usage.model_calls == 0
    sound(sim)


def test_a_whole_template_keeps_its_values_type_and_text_around_it_makes_text() -> None:
    steps: dict[str, Any] = {
        "seen": {**LOOK, "next": "done"},
        "done": {"end": {"output": {"n": "{{ seen.n + 1 }}", "said": "n is {{ seen.n }}", "all": "{{ seen }}"}}},
    }
    sim = run_of(workflow("seen", **steps))
    sim.arrive(result(sim.id(), {"n": 4, "deep": [1, None, True]}, tool="look"))
    assert end_of(sim).output == {"n": 5, "said": "n is 4", "all": {"n": 4, "deep": [1, None, True]}}
    sound(sim)


def test_the_model_makes_arguments_where_a_step_says_so() -> None:
    tool = {"name": "add", "instruction": "Add one to {{ task }}.", "arguments": {"b": 1}}
    sim = run_of(workflow("sum", sum={"tool": tool}), "six")
    assert sim.run.phase is Phase.THINKING
    assert kinds(sim.say(call("add", a=6, b=99))) == ["ModelAnswered", "ToolCalled"]
    assert sim.run.open_calls()[0].arguments == {"a": 6, "b": 1}
    sim.arrive(result(sim.id(), 7))
    assert end_of(sim).output == 7
    sound(sim)


@pytest.mark.parametrize("said", ['{"a": 6, "b": 1}', 'So:\n```json\n{"name": "add", "args": {"a": 6, "b": 1}}\n```'])
def test_arguments_may_come_as_text(said: str) -> None:
    sim = run_of(workflow("sum", sum={"tool": {"name": "add", "instruction": "Add."}}))
    sim.say(content=said)
    assert sim.run.open_calls()[0].arguments == {"a": 6, "b": 1}
    sound(sim)


def test_a_model_that_errs_is_told_and_asked_anew_within_bounds() -> None:
    sim = run_of(workflow("sum", sum={"tool": {"name": "add", "instruction": "Add."}}))
    events = sim.say(content="I would rather not.")
    assert kinds(events) == [
        "ModelAnswered",
        "WorkflowStepFinished",
        "StepFinished",
        "StepStarted",
        "ModelCalled",
    ]
    assert kinds(sim.say(call("add", a="six", b=1)))[1] == "CallRefused"
    sim.say(content="[]")
    assert end_of(sim).state == "error"
    assert "'sum'" in error_of(sim).message
    sound(sim)


def test_an_answer_fits_its_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ask = {"ask": {"prompt": "How many? {{ task }}", "schema": schema}, "next": "done"}
    sim = run_of(workflow("count", count=ask, done={"end": "{{ count.n * 2 }}"}))
    sim.say(content='{"n": "many"}')
    assert holds(sim.run.own.complaint, "answer.n", '"many"')  # type: ignore[union-attr]
    sim.say(content='{"n": 4}')
    assert end_of(sim).output == 8
    sound(sim)


def test_a_member_is_delegated_to() -> None:
    agent = {"agent": {"name": "kid", "task": "Count {{ task }}.", "inputs": {"n": [1, 2]}}}
    sim = run_of(workflow("ask", ask=agent), "sheep")
    started = only(sim.journal()[0].events, ev.DelegateStarted)
    assert (started.member, started.task, started.inputs) == ("kid", "Count sheep.", {"n": [1, 2]})
    sim.arrive(report(sim.id(), "3 sheep"))
    assert end_of(sim).output == "3 sheep"
    sound(sim)


def test_conditions_choose_without_a_model() -> None:
    steps: dict[str, Any] = {
        "seen": {**LOOK, "next": "pick"},
        "pick": {"choose": [{"if": "seen.n > 10", "next": "big"}, {"if": "seen.n > 5", "next": "middle"}]},
        "big": {"end": "big"},
        "middle": {"end": "middle"},
    }
    for n, found in ((11, "big"), (6, "middle")):
        sim = run_of(workflow("seen", **steps))
        sim.arrive(result(sim.id(), {"n": n}, tool="look"))
        assert end_of(sim).output == found
        sound(sim)


def test_no_open_way_is_an_error_and_never_a_standstill() -> None:
    sim = run_of(
        workflow(
            "seen",
            seen={**LOOK, "next": "pick"},
            pick={"choose": [{"if": "seen.n > 10", "next": "big"}]},
            big={"end": "big"},
        )
    )
    sim.arrive(result(sim.id(), {"n": 1}, tool="look"))
    error = error_of(sim)
    assert (error.type, "seen.n > 10" in error.message) == ("NoRoute", True)
    sound(sim)


@pytest.mark.parametrize(("verdict", "led_to"), [("approved", "ship"), ("rejected", "mend")])
def test_a_person_is_asked_and_the_word_is_read_later(verdict: str, led_to: str) -> None:
    steps: dict[str, Any] = {
        "sign": {"approve": {"question": "Ship {{ task }}?", "yes": "ship", "no": "mend"}},
        "ship": {"end": "{{ sign.answer }} by {{ sign.by }}: {{ sign.feedback }}"},
        "mend": {"end": "{{ sign.answer }} by {{ sign.by }}: {{ sign.feedback }}"},
    }
    sim = run_of(workflow("sign", **steps), "it")
    asked = only(sim.journal()[0].events, ev.ApprovalRequested)
    assert (asked.kind, asked.name, asked.reason) == ("question", "sign", "Ship it?")
    decide(sim, verdict, "well then")
    assert entered(sim) == ["sign", led_to]
    assert end_of(sim).output == f"{'yes' if led_to == 'ship' else 'no'} by ada: well then"
    sound(sim)


def test_a_question_expires() -> None:
    steps: dict[str, Any] = {
        "sign": {"approve": {"question": "Ship?", "seconds": "2h", "expired": "late"}},
        "late": {"end": "late"},
    }
    sim = run_of(workflow("sign", **steps))
    asked = only(sim.journal()[0].events, ev.ApprovalRequested)
    assert asked.expires_at == sim.at + 7200
    sim.arrive(timer(f"approval-{asked.call}"))
    assert end_of(sim).output == "late"
    sound(sim)


def test_a_no_without_a_way_ends_in_error_with_the_feedback() -> None:
    sim = run_of(workflow("sign", sign={"approve": "Ship?"}))
    decide(sim, "rejected", "too early")
    error = error_of(sim)
    assert (error.type, "too early" in error.message) == ("Rejected", True)
    sound(sim)


def test_a_wait_is_a_timer_and_nothing_else() -> None:
    sim = run_of(workflow("rest", rest={"wait": "30d", "next": "done"}, done={"end": "rested"}))
    begun = only(sim.journal()[0].events, ev.WaitStarted)
    assert begun.until == sim.at + 30 * 86_400
    assert [type(command).__name__ for command in sim.owed()] == ["SetTimer"]
    sim.at = begun.until
    sim.arrive(timer(f"kind-{begun.name}"))
    assert end_of(sim).output == "rested"
    sound(sim)


def test_a_wait_ends_at_a_time_that_an_earlier_step_gave() -> None:
    steps: dict[str, Any] = {"seen": {**LOOK, "next": "rest"}, "rest": {"wait": {"until": "{{ seen.due }}"}}}
    sim = run_of(workflow("seen", **steps))
    events = sim.arrive(result(sim.id(), {"due": "1970-01-01T01:00:00+00:00"}, tool="look"))
    assert only(events, ev.WaitStarted).until == 3600.0
    sound(sim)


SIGNALLED = {
    "paid": {"wait": {"signal": "paid", "seconds": "2d", "expired": "late"}, "next": "done"},
    "late": {"end": "late"},
    "done": {"end": "{{ paid.payload.sum }} by {{ paid.by }}"},
}


def test_a_wait_ends_with_a_signal_from_outside() -> None:
    sim = run_of(workflow("paid", **SIGNALLED))
    payload = {"sum": 7}
    sim.arrive(Signal(id="s1", tree="r1", run="r1", at=2.0, name="paid", payload=payload, sender="till"))
    assert end_of(sim).output == "7 by till"
    sound(sim)


def test_a_signal_that_does_not_come_in_time() -> None:
    sim = run_of(workflow("paid", **SIGNALLED))
    name = only(sim.journal()[0].events, ev.WaitStarted).name
    sim.arrive(timer(f"kind-{name}"))
    assert end_of(sim).output == "late"
    sound(sim)


ROUTE = {
    "route": {
        "instruction": "What is it?",
        "options": {"Complaint": "calm", "Praise": "thank", "Thanks": "thank"},
        "default": "drop",
    }
}
ENDS = {"calm": {"end": "calm"}, "thank": {"end": "thank"}, "drop": {"end": "drop"}}


@pytest.mark.parametrize(
    ("said", "led_to"),
    [
        ("Complaint", "calm"),
        ('"praise".', "thank"),
        ("'THANKS'", "thank"),
        ('{"answer": "Praise"}', "thank"),
        ("A complaint, I think", "drop"),
    ],
)
def test_the_model_chooses_a_way_by_its_label(said: str, led_to: str) -> None:
    sim = run_of(workflow("seen", seen={**LOOK, **ROUTE}, **ENDS))
    assert kinds(sim.arrive(result(sim.id(), "a letter", tool="look"))) == [
        "ToolAnswered",
        "ModelCalled",
    ]
    sim.say(content=said)
    assert end_of(sim).output == led_to
    sound(sim)


def test_a_step_is_tried_again_after_a_pause_that_grows() -> None:
    steps: dict[str, Any] = {"seen": {**LOOK, "attempts": {"most": 3, "pause": 10, "on": ["busy"]}}}
    sim = run_of(workflow("seen", **steps))
    for pause in (10, 20):
        events = sim.arrive(result(sim.id(), error=BUSY, tool="look"))
        assert kinds(events) == ["ToolAnswered", "WorkflowStepFinished", "StepFinished", "WaitStarted"]
        wait = only(events, ev.WaitStarted)
        assert wait.until - sim.at == pause
        sim.arrive(timer(f"kind-{wait.name}"))
    sim.arrive(result(sim.id(), {"n": 1}, tool="look"))
    assert (end_of(sim).output, sim.run.own.visits) == ({"n": 1}, {"seen": 1})  # type: ignore[union-attr]
    sound(sim)


def test_a_run_that_waits_to_ask_again_asks_no_model_meanwhile() -> None:
    ask = {"ask": {"prompt": "How many?"}, "attempts": {"most": 2, "pause": 10}}
    sim = run_of(workflow("count", count=ask))
    events = sim.fail("no such model", final=True)
    assert kinds(events) == ["WorkflowStepFinished", "StepFinished", "WaitStarted"]
    assert sim.run.model is None
    assert [type(command) for command in sim.owed()] == [SetTimer]
    sim.arrive(timer(f"kind-{only(events, ev.WaitStarted).name}"))
    sim.say(content="three")
    assert end_of(sim).output == "three"
    sound(sim)


def test_another_error_is_not_tried_again() -> None:
    sim = run_of(workflow("seen", seen={**LOOK, "attempts": {"most": 3, "on": ["busy"]}}))
    sim.arrive(result(sim.id(), error=GONE, tool="look"))
    assert end_of(sim).state == "error"


def test_an_error_leads_to_the_step_that_is_there_for_it() -> None:
    steps: dict[str, Any] = {
        "seen": {**LOOK, "on_error": "sorry"},
        "sorry": {"end": "{{ error.step }}: {{ error.message }}"},
    }
    sim = run_of(workflow("seen", **steps))
    sim.arrive(result(sim.id(), error=GONE, tool="look"))
    assert str(end_of(sim).output).startswith("seen: ")
    sound(sim)


def test_a_loop_ends_at_the_visits_of_its_step() -> None:
    steps: dict[str, Any] = {
        "seen": {**LOOK, "visits": 3, "when": [{"if": "seen.done", "next": "done"}], "next": "seen"}
    }
    sim = run_of(workflow("seen", **steps, done={"end": "done"}))
    for _ in range(3):
        sim.arrive(result(sim.id(), {"done": False}, tool="look"))
    assert (error_of(sim).type, entered(sim)) == ("LoopDetected", ["seen"] * 4)
    sound(sim)


def test_the_same_call_may_be_made_as_often_as_the_steps_say() -> None:
    steps: dict[str, Any] = {"seen": {**LOOK, "when": [{"if": "seen.done", "next": "done"}], "next": "seen"}}
    sim = run_of(workflow("seen", **steps, done={"end": "done"}))
    for done in [*[False] * 20, True]:
        sim.arrive(result(sim.id(), {"done": done}, tool="look"))
    assert end_of(sim).output == "done"


def test_a_tool_that_no_service_offers_at_the_moment_is_waited_for() -> None:
    sim = SimulatedRun(workflow("seen", seen=LOOK), Toolset(missing=["look"])).begin()
    events = sim.journal()[0].events
    assert kinds(events)[-5:] == [
        "StepStarted",
        "CallRefused",
        "WorkflowStepFinished",
        "StepFinished",
        "WaitStarted",
    ]
    sim.toolset = OFFER
    wait = only(events, ev.WaitStarted)
    assert kinds(sim.arrive(timer(f"kind-{wait.name}")))[-1] == "ToolCalled"
    sim.arrive(result(sim.id(), 1, tool="look"))
    assert end_of(sim).output == 1
    sound(sim)


def test_a_step_whose_tool_is_away_is_tried_again_unless_it_may_have_been_begun() -> None:
    sim = run_of(workflow("seen", seen=LOOK))
    events = sim.arrive(timer(away_timer(sim.id(), begun=False)))
    assert (kinds(events)[0], kinds(events)[-1]) == ("CallTimedOut", "ToolCalled")
    sim.arrive(timer(away_timer(sim.id(), begun=True)))
    assert error_of(sim).type == "Interrupted"
    sound(sim)


def test_a_step_whose_tool_stays_away_fails() -> None:
    sim = run_of(workflow("seen", seen={**LOOK, "on_error": "no"}, no={"end": "{{ error.type }}"}))
    for _ in range(6):
        sim.arrive(timer(away_timer(sim.id(), begun=False)))
    assert end_of(sim).output == "Away"
    sound(sim)


def test_a_call_that_needs_approval_waits_for_it_in_a_workflow_too() -> None:
    agent = workflow("seen", {"permission": "restricted"}, seen={**LOOK, "on_error": "no"}, no={"end": "no"})
    sim = run_of(agent)
    assert only(sim.journal()[0].events, ev.ApprovalRequested).name == "look"
    assert sim.owed() == []
    decide(sim, "rejected", "not that")
    assert (end_of(sim).output, entered(sim)) == ("no", ["seen", "no"])
    sound(sim)


def test_what_is_not_there_is_an_error_of_the_step() -> None:
    sim = run_of(workflow("seen", seen={**LOOK, "next": "done"}, done={"end": "{{ seen.nothing }}"}))
    sim.arrive(result(sim.id(), {"n": 1}, tool="look"))
    error = error_of(sim)
    assert (error.type, "nothing" in error.message) == ("ExpressionError", True)


def test_what_a_tool_returns_is_never_read_as_a_template() -> None:
    sim = run_of(workflow("seen", seen={**LOOK, "next": "done"}, done={"end": "It is {{ seen }}."}))
    sim.arrive(result(sim.id(), "{{ 1 + 1 }} __import__('os')", tool="look"))
    assert end_of(sim).output == "It is {{ 1 + 1 }} __import__('os')."


def test_an_answer_that_does_not_fit_ends_the_workflow_in_error() -> None:
    sim = run_of(workflow("seen", {"output_schema": {"type": "integer"}}, seen=LOOK))
    sim.arrive(result(sim.id(), "many", tool="look"))
    error = error_of(sim)
    assert (error.type, "output schema" in error.message) == ("AgentError", True)
    sound(sim)


def test_a_cancelled_run_is_over() -> None:
    sim = run_of(workflow("seen", seen=LOOK))
    sim.arrive(cancel())
    assert end_of(sim).state == "cancelled"
    sound(sim)


def test_the_steps_of_a_run_are_bounded_by_its_task() -> None:
    sim = run_of(workflow("seen", seen={**LOOK, "next": "seen2"}, seen2=LOOK), max_steps=1)
    sim.arrive(result(sim.id(), 1, tool="look"))
    assert end_of(sim).state == "max_steps_error"
