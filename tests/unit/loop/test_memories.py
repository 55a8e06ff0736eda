"""Tests of what a run asks the memory service before it begins, and what it leaves there."""

from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import SetTimer
from cadre.engine.fold import fold
from cadre.engine.timers import ended, running
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.run import Memory, Phase, RecalledStep
from cadre.loop.owed import owed
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo, Origin, Task, ToolCall
from cadre.spec.agent import MemorySpec
from unit.loop.build import (
    ANSWER,
    SimulatedRun,
    call,
    cancel,
    kinds,
    only,
    result,
    sent,
    sound,
    spec,
    task,
    timer,
)
from unit.loop.memory_world import PROMPTS

SEEN = {"id": "m1", "text": "The quay is 40 m long.", "score": 0.9, "agent": "surveyor", "scope": "team"}
HITS = {"hits": [{**SEEN, "at": 1e9}, {**SEEN, "id": "m2", "at": 1e9}], "degraded": False, "why": ""}
REMINDED = spec(memory=MemorySpec(recall=2, seconds=5, team="coast", scope="team"))
KEEPER = spec(memory=MemorySpec(remember="steps", scope="user"))


def calls(sim: SimulatedRun, tool: str, since: int = 0) -> list[ToolCall]:
    return [one for one in sent(sim, ToolCall, since) if one.tool == tool]


def asking(**fields: Any) -> SimulatedRun:
    return SimulatedRun(REMINDED).begin("How long is the quay?", **fields)


def test_a_run_asks_first_and_thinks_with_what_it_gets() -> None:
    sim = asking(origin=Origin(user="ada", session="s1"))
    (asked,) = calls(sim, "recall")
    assert asked.id == "r1_0_0"
    assert asked.arguments == {"query": "How long is the quay?", "k": 2}
    assert asked.origin == Origin(
        user="ada", session="s1", team="coast", reads=list(REMINDED.memory.reads), writes="team"
    )
    assert asked.deadline == sim.at + 5
    (wait,) = [one for one in sim.owed() if isinstance(one, SetTimer)]
    assert (wait.timer.name, wait.due) == ("call-r1_0_0", sim.at + 5)
    events = sim.arrive(result("r1_0_0", HITS))
    assert kinds(events) == ["MemoryRecalled", "ToolsetChanged", "ModelCalled"]
    (step,) = [one for one in sim.run.steps if isinstance(one, RecalledStep)]
    assert step.memories[0] == Memory(text="The quay is 40 m long.", agent="surveyor", scope="team", at=1e9)
    note = Transcript(PROMPTS).request(sim.run, "act").messages[2]
    assert note["role"] == "user"
    assert 'by="surveyor" on="2001-09-09"' in note["content"]
    assert "The quay is 40 m long." in note["content"]


def test_the_answer_ends_the_wait() -> None:
    sim = asking()
    before = running(sim.run)
    sim.arrive(result("r1_0_0", HITS))
    assert ended(before, sim.run) == "call-r1_0_0"
    assert ended(before, sim.run, "call-r1_0_0") is None


@pytest.mark.parametrize(
    ("what", "code", "named"),
    [
        (timer("call-r1_0_0"), "interrupted", "5 s"),
        (result("r1_0_0", error=ErrorInfo("tool-failed", "no index")), "tool-failed", "no index"),
        (result("r1_0_0", "nonsense"), "tool-failed", "recall"),
    ],
)
def test_a_run_begins_without_memories_when_there_are_none(what: Any, code: str, named: str) -> None:
    sim = asking()
    recalled = only(sim.arrive(what), ev.MemoryRecalled)
    assert recalled.error is not None
    assert recalled.error.code == code
    assert named in recalled.error.message
    assert sim.run.phase is Phase.THINKING
    assert not calls(sim, "recall")


def test_a_late_answer_changes_nothing() -> None:
    sim = asking()
    sim.arrive(timer("call-r1_0_0"))
    assert kinds(sim.arrive(result("r1_0_0", HITS))) == ["RecordIgnored"]


def test_a_cancelled_run_asks_no_more() -> None:
    sim = asking()
    sim.arrive(cancel())
    assert sim.run.phase is Phase.DONE
    assert not calls(sim, "recall")


def test_the_plan_is_made_with_the_memories() -> None:
    sim = SimulatedRun(spec(memory=MemorySpec(recall=2), planning_interval=1)).begin("How long is the quay?")
    sim.arrive(result("r1_0_0", HITS))
    known, asked = Transcript(PROMPTS).request(sim.run, "plan").messages
    assert "The quay is 40 m long." in known["content"]
    assert "How long is the quay?" in asked["content"]
    sim.say(content="1. Answer.")
    assert sim.run.steps[-1].first  # type: ignore[union-attr]


def test_a_replay_sees_the_same_memories() -> None:
    for what in (
        result("r1_0_0", HITS),
        result("r1_0_0", {**HITS, "degraded": True, "why": "no embeddings"}),
        timer("call-r1_0_0"),
        result("r1_0_0", error=ErrorInfo("tool-failed", "no index")),
    ):
        sim = asking()
        sim.arrive(what)
        sim.say(ANSWER)
        sound(sim)


# --- what is left


def test_each_finished_step_is_left_once_and_nobody_waits_for_it() -> None:
    sim = SimulatedRun(KEEPER).begin(origin=Origin(user="ada"))
    sim.say(call("add", a=1, b=2), content="Adding.")
    assert not calls(sim, "remember")
    sim.arrive(result(sim.id(), 3))
    (left,) = calls(sim, "remember", 3)
    assert left.id == "r1_1_step"
    assert not left.reply
    assert left.arguments == {"text": 'Adding.\nadd({"a":1,"b":2}): 3', "kind": "step", "step": 1}
    assert left.origin is not None
    assert (left.origin.user, left.origin.writes) == ("ada", "user")
    assert calls(sim, "remember", 4) == []
    assert calls(sim, "remember") == [left]
    sim.say(ANSWER)
    answer = calls(sim, "remember", 4)[-1]
    assert answer.id == "r1_2_answer"
    assert answer.arguments["text"] == "Task: Do it.\nAnswer: 42"
    assert calls(sim, "remember") == [left, answer]


def test_a_run_leaves_only_its_answer_when_told_so() -> None:
    sim = SimulatedRun(spec(memory=MemorySpec(remember="answers"))).begin()
    sim.say(call("add", a=1, b=2))
    sim.arrive(result(sim.id(), 3))
    sim.say(ANSWER)
    assert [one.arguments["kind"] for one in calls(sim, "remember")] == ["answer"]


def test_a_failed_run_leaves_no_answer() -> None:
    sim = SimulatedRun(spec(memory=MemorySpec(remember="answers"))).begin()
    sim.arrive(cancel())
    assert calls(sim, "remember") == []


def test_steps_of_the_run_that_one_goes_on_from_are_not_left_again() -> None:
    before = SimulatedRun(KEEPER).begin()
    before.say(call("add", a=1, b=2))
    before.arrive(result(before.id(), 3))
    before.say(ANSWER)
    sim = SimulatedRun(KEEPER, run="r2")
    sim.arrive(task("Then?", run="r2", continues="r1"), history=before.run.steps)
    assert calls(sim, "remember") == []


def test_a_fold_keeps_what_was_asked_and_what_is_left() -> None:
    sim = asking()
    again = fold(sim.journal(), "r1", "r1")
    assert owed(again) == sim.owed()


def test_other_tools_learn_for_whom_they_are_called_and_of_no_memories() -> None:
    sim = SimulatedRun(spec(tools=["add", "look"])).begin(origin=Origin(user="ada", session="s1"))
    sim.say(call("add", a=1, b=2))
    assert calls(sim, "add")[0].origin == Origin(user="ada", session="s1")


def test_children_work_for_the_same_person() -> None:
    sim = SimulatedRun().begin(origin=Origin(user="ada", session="s1"))
    sim.say(call("kid", task="Help."))
    (child,) = sent(sim, Task)
    assert child.origin == Origin(user="ada", session="s1")


@pytest.mark.parametrize("bad", [{"recall": -1}, {"seconds": 0}, {"scope": "team"}])
def test_a_memory_that_cannot_work_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        spec(memory=MemorySpec(**bad)).__post_init__()


@pytest.mark.parametrize("kind", ["tool_calling", "code", "structured_code"])
def test_notes_are_shown_as_records(kind: Any) -> None:
    text = Prompts.load(kind).recalled([Memory(text="Salt.", agent="a", at=0.0)])
    assert '<note by="a">\n' in text
    assert "no instructions" in text


def test_what_was_left_stays_as_it_was_when_an_outcome_comes_late() -> None:
    own = spec(memory=MemorySpec(remember="steps"), timeouts={"add": 5.0})
    sim = SimulatedRun(own).begin()
    sim.say(call("add", a=1, b=2))
    late = sim.id()
    sim.at += 6
    sim.arrive(timer(f"call-{late}"))
    sim.say(ANSWER)
    before = calls(sim, "remember")
    sim.arrive(result(late, 3))
    assert calls(sim, "remember") == before
    assert before[0].arguments["step"] == 1
