"""Calls that their tool leaves unfinished: gone on with after a pause, or when a person has answered."""

from typing import Any

from cadre.engine.commands import Revoke, SetTimer
from cadre.journal import events as ev
from cadre.protocol.messages import (
    Decision,
    PersonsAnswer,
    Resumption,
    ToolCall,
    ToolResult,
    Unfinished,
    Verdict,
)
from unit.loop.build import SimulatedRun, call, cancel, kinds, only, result, sent, sound, timer

CALL = "r1_1_0"
COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def unfinished(number: int, **fields: Any) -> ToolResult:
    left = Unfinished(state={"round": number}, **fields)
    return ToolResult(id=f"{CALL}~{number}:result", tree="r1", run="r1", at=2.0, call=CALL, tool="add", unfinished=left)


def said(verdict: Verdict, **fields: Any) -> Decision:
    return Decision(id=f"d{verdict}{len(fields)}", tree="r1", run="r1", at=3.0, call=CALL, verdict=verdict, **fields)


def begun() -> SimulatedRun:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2))
    return sim


def timers(sim: SimulatedRun) -> list[str]:
    return [one.timer.name for one in sim.owed() if isinstance(one, SetTimer)]


def test_a_call_goes_on_after_each_pause_in_a_round_of_its_own() -> None:
    sim = begun()
    for number in (1, 2):
        assert kinds(sim.arrive(unfinished(number, seconds=5.0, may_repeat=True))) == ["ToolPaused"]
        assert sent(sim, ToolCall) == [], "nobody works at it meanwhile"
        (name,) = timers(sim)
        assert kinds(sim.arrive(timer(name))) == ["ToolCalled"]
        (again,) = sent(sim, ToolCall)
        assert (again.id, again.arguments) == (f"{CALL}~{number}", {"a": 1, "b": 2})
        assert again.resumes == Resumption(round=number, state={"round": number}, may_repeat=True)
        assert kinds(sim.arrive(timer(name)))[0] == "RecordIgnored", "each pause has its own timer"
    assert "ToolAnswered" in kinds(sim.arrive(result(CALL, 3)))
    sound(sim)


def test_a_person_answers_the_question_of_a_call() -> None:
    sim = begun()
    asked = only(sim.arrive(unfinished(1, question="Which colour?", schema=COLOUR)), ev.ApprovalRequested)
    assert (asked.call, asked.kind, asked.reason) == (CALL, "tool", "Which colour?")
    assert kinds(sim.arrive(result(CALL, 3))) == ["RecordIgnored"]
    assert kinds(sim.arrive(said("approved"))) == ["RecordIgnored"], "that does not say which"
    assert kinds(sim.arrive(said("corrected", arguments={"colour": 5}))) == ["RecordIgnored"]
    decided = sim.arrive(said("corrected", feedback="", arguments={"colour": "blue"}))
    assert kinds(decided) == ["ApprovalDecided", "ToolCalled"]
    (again,) = sent(sim, ToolCall)
    assert again.resumes is not None
    assert again.resumes.answer == PersonsAnswer("accept", {"colour": "blue"})
    assert again.arguments == {"a": 1, "b": 2}
    sim.arrive(unfinished(2, question="Sure?"))
    assert kinds(sim.arrive(said("rejected"))) == ["ApprovalDecided", "ToolCalled"], "the tool hears of a no"
    (again,) = sent(sim, ToolCall)
    assert again.resumes is not None
    assert (again.resumes.round, again.resumes.answer) == (2, PersonsAnswer("decline"))
    sound(sim)


def test_who_keeps_a_call_that_pauses_is_told_of_the_end() -> None:
    sim = begun()
    sim.arrive(unfinished(1, seconds=5.0))
    sim.arrive(cancel())
    (last,) = sent(sim, ToolCall)
    assert (last.id, last.reply, last.cleanup) == (f"{CALL}~1", False, True)
    assert last.resumes == Resumption(round=1, state={"round": 1}, may_repeat=True)


def test_a_later_round_that_is_under_way_is_revoked_by_its_id() -> None:
    sim = begun()
    sim.arrive(unfinished(1, seconds=5.0))
    sim.arrive(timer(timers(sim)[0]))
    sim.arrive(cancel())
    (revoked,) = [one for one in sim.owed() if isinstance(one, Revoke)]
    assert revoked.result.call == f"{CALL}~1"
    sound(sim)
