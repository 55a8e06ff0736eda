"""Held calls on the command line: what is typed, what a followed run shows, how long a time is."""

from typing import Any

import click
import pytest

from cadre.cli.run_view.run_text import state
from cadre.cli.runs.ask import decision_of
from cadre.cli.terminal.options import Duration, json_object, key_values
from cadre.cli.terminal.outcome import exit_code
from cadre.errors import ExitCode
from cadre.journal import events as ev
from cadre.views.words import call_text
from unit.sent_rows import Sent, Told, accepted

RUN = "r"
CALL = "r_1_0"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5", 1.5),
        ("10m", 600),
        ("2h", 7200),
        ("3d", 259_200),
        ("0.5h", 1800),
        ("10 m", 600),
        ("1w", 604_800),
    ],
)
def test_a_time_is_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "-1", "10 moons", "1y", "1e3", "inf", "nan", "m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write seconds, or 10m, 2h, 3d"):
        Duration().convert(text, None, None)


def test_a_length_of_time_may_be_too_short() -> None:
    assert Duration(1).convert("1s", None, None) == 1
    with pytest.raises(click.BadParameter, match="at least 1 s"):
        Duration(1).convert("0.5s", None, None)


def test_values_are_json_or_text() -> None:
    assert key_values("--set", ("a=1", "b=x y", 'c={"d": null}', "e=", "f=NaN", "g=a=b")) == {
        "a": 1,
        "b": "x y",
        "c": {"d": None},
        "e": "",
        "f": "NaN",
        "g": "a=b",
    }


@pytest.mark.parametrize(
    ("texts", "problem"),
    [(("a",), "write NAME=VALUE"), (("=1",), "write NAME=VALUE"), (("a=1", "a=2"), "more than once")],
)
def test_values_that_are_none(texts: tuple[str, ...], problem: str) -> None:
    with pytest.raises(click.UsageError, match=problem):
        key_values("--set", texts)


@pytest.mark.parametrize("text", ["", "[1]", "1", "{a: 1}", '{"a": NaN}', "[" * 100_000])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(click.UsageError, match="--arguments"):
        json_object("--arguments", text)


@pytest.mark.parametrize(
    ("line", "ruling"),
    [
        ("a", {"verdict": "approved", "feedback": ""}),
        (" Approve  fine ", {"verdict": "approved", "feedback": "fine"}),
        ("r he was paid", {"verdict": "rejected", "feedback": "he was paid"}),
        ('c {"amount": 5}', {"verdict": "corrected", "arguments": {"amount": 5}}),
        ("l", None),
    ],
)
def test_a_typed_decision(line: str, ruling: dict[str, Any] | None) -> None:
    assert decision_of(line) == ruling


@pytest.mark.parametrize("line", ["", "yes", "c", "c 5", "c {", "approved"])
def test_a_line_that_decides_nothing(line: str) -> None:
    with pytest.raises(click.UsageError):
        decision_of(line)


def test_a_call_on_one_line() -> None:
    assert call_text("refund", {"amount": 5, "note": "a\nb"}) == 'refund(amount=5, note="a\\nb")'
    assert call_text("clerk", "do it") == "clerk(do it)"
    assert len(call_text("refund", {"note": "x" * 1000}, 40)) == 40


# --- a followed run


ACCEPTED = accepted(RUN, 1, "refund it", "clerk")
REQUESTED = (
    RUN,
    2.0,
    ev.ApprovalRequested(call=CALL, name="refund", kind="tool", arguments={"amount": 500}, reason="when: amount > 100"),
)
CALLED = (RUN, 3.0, ev.ToolCalled(call=CALL, tool="refund", arguments={"amount": 500}))
NOTE = (RUN, 3.0, ev.ToolCalled(call=CALL, tool="note", arguments={"text": "no"}))


def decided(verdict: Any, **fields: Any) -> Told:
    return RUN, 3.0, ev.ApprovalDecided(call=CALL, verdict=verdict, sender="ann", **fields)


CORRECTED = decided("corrected", name="note", arguments={"text": "no"}, feedback="only a note")


def test_a_held_call_is_drawn_with_what_to_type() -> None:
    sent = Sent(ACCEPTED, REQUESTED)
    assert "waits for approval: refund(amount=500) (when: amount > 100)" in sent.drawn()
    assert f"cadre approve {CALL}" in sent.drawn()
    assert sent.run(RUN).state == "waiting"


def test_an_approved_call_goes_on_in_its_place() -> None:
    sent = Sent(ACCEPTED, REQUESTED, decided("approved"), CALLED)
    assert (sent.call(CALL).state, sent.run(RUN).state) == ("open", "open")
    assert "approved by ann" in sent.drawn()
    assert "cadre approve" not in sent.drawn()


def test_a_corrected_call_is_drawn_as_it_is_made() -> None:
    sent = Sent(ACCEPTED, REQUESTED, CORRECTED, NOTE)
    row = sent.call(CALL)
    assert (row.name, row.brief, row.state) == ("note", '(text="no")', "open")
    assert "corrected by ann: only a note" in sent.drawn()


def test_a_rejected_call_has_failed_and_the_other_one_waits() -> None:
    other = ev.ApprovalRequested(call="r_1_1", name="refund", kind="tool", arguments={"amount": 700}, reason="")
    sent = Sent(ACCEPTED, REQUESTED, (RUN, 2.0, other), decided("rejected", feedback="no"))
    assert (sent.call(CALL).state, sent.call("r_1_1").state) == ("failed", "held")
    assert sent.run(RUN).state == "waiting"
    assert "rejected by ann: no" in sent.drawn()


def test_an_answered_question_is_no_open_call() -> None:
    question = ev.ApprovalRequested(call=CALL, name="", kind="question", arguments={}, reason="go on?")
    sent = Sent(ACCEPTED, (RUN, 2.0, question))
    assert sent.call(CALL).is_question
    assert sent.texts[-1] == f"clerk: asks a person: go on?: cadre approve|reject {CALL}"
    sent.add(*decided("approved", feedback="do"))
    assert (sent.call(CALL).state, sent.call(CALL).result, sent.run(RUN).state) == ("ok", "do", "open")


def test_a_run_that_ends_while_it_waits() -> None:
    sent = Sent(ACCEPTED, REQUESTED, (RUN, 4, ev.RunFinished(state="cancelled")))
    assert sent.call(CALL).state == "dropped"
    assert "cadre approve" not in sent.drawn()


def test_a_call_that_took_too_long_has_failed() -> None:
    sent = Sent(ACCEPTED, CALLED, (RUN, 9, ev.CallTimedOut(call=CALL, seconds=5)))
    assert (sent.call(CALL).state, sent.call(CALL).result) == ("failed", "no answer within 5 s")


def test_the_lines_of_a_held_call() -> None:
    assert Sent(ACCEPTED, REQUESTED, CORRECTED).texts[1:] == [
        f"clerk: waits for approval: refund(amount=500) (when: amount > 100): cadre approve {CALL}",
        'clerk: refund: corrected by ann: only a note, now note(text="no")',
    ]
    assert Sent(ACCEPTED, REQUESTED, decided("expired")).texts[-1].startswith("clerk: refund: ")
    late = (RUN, 9.0, ev.CallTimedOut(call=CALL, seconds=5))
    assert Sent(ACCEPTED, CALLED, late).texts[-1] == "clerk: refund: no answer within 5 s"


def test_what_a_run_waits_for_stands_in_the_list() -> None:
    assert state({"state": "waiting", "waiting_for": "approval", "approvals": 2}) == "waiting, 2 to approve"
    assert state({"state": "running", "approvals": 1}) == "running, 1 to approve"
    assert state({"state": "waiting", "waiting_for": "model"}) == "waiting for model"
    assert state({"state": "success", "waiting_for": None, "approvals": 0}) == "success"


@pytest.mark.parametrize("code", ["deadline", "budget"])
def test_a_bound_that_was_reached_has_the_exit_code_of_limits(code: str) -> None:
    assert exit_code({"state": "error", "error": {"code": code, "message": ""}}) is ExitCode.LIMIT
    assert exit_code({"state": "error", "error": {"code": "loop", "message": ""}}) is ExitCode.FAILED
