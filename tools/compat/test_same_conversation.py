"""smolagents' agents and Cadre's, given the same tasks and answers by the model: what they tell it, how they end."""

from typing import Any

import pytest

from compat.case import CADRE, SMOLAGENTS, Case
from compat.cases import CASES
from compat.conversations import Request, text_of
from compat.design import by_cadre, by_smolagents, steps_by_smolagents
from compat.dialect import CADRE as CADRE_DIALECT
from compat.ends import INTERRUPTED, REFUSED
from compat.facts import Turn, turns_of
from compat.playing import Played

pytestmark = pytest.mark.timeout(900)

DEFECTS: dict[str, str] = {}
"""Cases in which Cadre is to become as smolagents is; a case that has become so must leave this list."""


def expected(case: Case) -> Any:
    defect = DEFECTS.get(case.name)
    marks = [pytest.mark.xfail(strict=True, reason=defect)] if defect else []
    return pytest.param(case, id=case.name, marks=marks)


EACH = pytest.mark.parametrize("case", [expected(case) for case in CASES])


def heard(played: Played, system: str, mark: str) -> list[Request]:
    return played.conversations.get((system, mark), [])


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@EACH
def test_both_end_with_the_same_answer(played: Played, case: Case) -> None:
    for system in (SMOLAGENTS, CADRE):
        result = played.results[system, case.name]
        assert (result["state"], result["output"]) == (case.state, case.answer), result["error"]


@EACH
def test_both_count_the_same_tokens_and_tell_of_the_same_steps(played: Played, case: Case) -> None:
    theirs, ours = played.results[SMOLAGENTS, case.name], played.results[CADRE, case.name]
    assert ours["tokens"] == theirs["tokens"]
    assert ours["steps"] == steps_by_smolagents(case, theirs["steps"])


@EACH
def test_both_show_the_model_the_same(played: Played, case: Case) -> None:
    for mark, answers in case.scripts:
        theirs, ours = heard(played, SMOLAGENTS, mark), heard(played, CADRE, mark)
        assert len(ours) == len(theirs) == len(answers), "every answer was asked for once"
        for n, (their, our) in enumerate(zip(theirs, ours, strict=True), 1):
            assert by_cadre(our) == by_smolagents(their), f"request {n} of {mark}"


@EACH
def test_both_ask_for_the_same_form_of_answer(played: Played, case: Case) -> None:
    for mark, _ in case.scripts:
        theirs, ours = heard(played, SMOLAGENTS, mark), heard(played, CADRE, mark)
        assert [form(request) for request in ours] == [form(request) for request in theirs]


def form(request: Request) -> tuple[bool, object, bool]:
    return ("tools" in request, request.get("tool_choice"), "response_format" in request)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_left_unread(played: Played, case: Case) -> None:
    """Turns that the comparison does not understand could differ unseen."""
    for system, reduced in ((SMOLAGENTS, by_smolagents), (CADRE, by_cadre)):
        for request in heard(played, system, case.mark):
            turns = reduced(request)
            assert all(facts for _, facts in turns), turns
            assert not [fact for _, facts in turns for fact in facts if "unknown" in fact[:2]]


# What differs by design: that Cadre really does what its side of the difference says.


def ours(played: Played, name: str, *, request: int = -1) -> list[Turn]:
    return turns_of(heard(played, CADRE, named(name).mark)[request], CADRE_DIALECT)


def kinds(turns: list[Turn]) -> list[tuple[str, list[str]]]:
    return [(role, [fact[0] for fact in facts]) for role, facts in turns]


def test_the_results_of_a_failed_calls_siblings_stay(played: Played) -> None:
    turns = kinds(ours(played, "one-of-two-fails"))
    assert turns[-2:] == [("assistant", ["called", "called"]), ("user", ["observed", "error"])]


def test_a_call_that_failed_is_still_seen(played: Played) -> None:
    roles = [role for role, _ in ours(played, "wrong-arguments")]
    assert roles == ["system", "user", *["assistant", "user"] * 4]


def test_calls_go_back_as_native_messages(played: Played) -> None:
    messages = heard(played, CADRE, named("parallel").mark)[-1]["messages"]
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
    ]
    made = [call["id"] for call in messages[2]["tool_calls"]]
    assert made == [message["tool_call_id"] for message in messages[3:]]


def test_an_image_is_shown_once(played: Played) -> None:
    for request in heard(played, CADRE, named("image").mark):
        facts = [fact for _, facts in turns_of(request, CADRE_DIALECT) for fact in facts]
        assert facts.count(("image",)) == 1


def test_a_later_plan_knows_how_many_steps_are_left(played: Played) -> None:
    later = heard(played, CADRE, named("plan-and-code").mark)[3]
    assert "7 steps remain" in text_of(later["messages"][-1])


def test_code_shows_the_kind_of_a_tools_error(played: Played) -> None:
    told = text_of(heard(played, CADRE, named("tool-fails-in-code").mark)[-1]["messages"][-1])
    assert "CallError" in told
    assert "ValueError: kaput" in told


def test_the_line_that_failed_is_quoted_wherever_it_stands(played: Played) -> None:
    (error,) = [fact for fact in ours(played, "error-in-a-function")[-1][1] if fact[0] == "error"]
    assert error[2]["line"] == "raise ValueError('never')"


def test_a_generation_error_ends_the_run(played: Played) -> None:
    for system in (SMOLAGENTS, CADRE):
        result = played.results[system, REFUSED.name]
        assert (result["state"], result["error"]["type"]) == ("error", "AgentGenerationError")
        assert "no such model" in result["error"]["message"]
        assert len(heard(played, system, REFUSED.mark)) == 1, "and what was answered stays in memory"
        assert result["steps"][0] == [1, ""]


def test_an_interrupt_ends_the_run_and_what_it_calls(played: Played) -> None:
    theirs, ours = (played.results[system, INTERRUPTED.name] for system in (SMOLAGENTS, CADRE))
    assert (theirs["state"], theirs["error"]["message"]) == ("error", "Agent interrupted.")
    assert ours["state"] == "cancelled"
    assert ours["steps"][: INTERRUPTED.interrupts] == theirs["steps"]
    # smolagents looks before each step; Cadre ends the call that is at work.
    assert [len(heard(played, system, INTERRUPTED.mark)) for system in (SMOLAGENTS, CADRE)] == [1, 2]
