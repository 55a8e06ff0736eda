"""Tests of what a run with a plan leaves to the memory service, and what it is shown of earlier work."""

from cadre.protocol.memory import RECALL, REMEMBER
from cadre.protocol.messages import ToolCall
from cadre.spec.agent import MemorySpec
from kinds.plan.build import ADD, LOOK, begun, child_of, done, failed, plan, purpose, reported, tasks, text
from unit.loop.build import SimulatedRun, call, result, sent, sound

STEPS = ({"step": 1, **ADD}, {"step": 2, **LOOK, "needs": []})


def kept(sim: SimulatedRun) -> dict[str, str]:
    """Return what the memory service is given, by its number and kind."""
    calls = [one for one in sent(sim, ToolCall) if one.tool == REMEMBER]
    return {one.id.removeprefix(f"{sim.run.id}_"): one.arguments["text"] for one in calls}


def played(remember: str) -> tuple[SimulatedRun, SimulatedRun]:
    """A run whose plan is made again, and the run that carries its last step out."""
    memory = {"memory": MemorySpec(remember=remember)}  # type: ignore[arg-type]
    sim = begun(*STEPS, fields=memory, task="Add up.")
    failed(sim, 2)
    assert kept(sim) == {}
    done(sim, 1, 3)
    sim.say(content=plan({"step": 3, "task": "Tell {{ step_1 }}."}))
    child = child_of(sim, tasks(sim)[0])
    child.say(call("final_answer", answer="three"))
    sim.arrive(reported(child))
    sound(sim)
    return sim, child


def test_a_plan_is_left_with_what_became_of_it_and_so_is_its_result() -> None:
    sim, child = played("steps")
    first, last, answer = kept(sim).values()
    assert first.splitlines()[:2] == ['1. [done] add: {"a":1,"b":2}', '2. [failed] look: {"at":"sky"}']
    assert "failed: no abacus" in first
    assert last.splitlines()[:3] == [
        '1. [done] add: {"a":1,"b":2}',
        '2. [replaced] look: {"at":"sky"}',
        "3. [done] execute: Tell {{ step_1 }}.",
    ]
    assert answer == "Task: Add up.\nAnswer: three"
    assert kept(child) == {}


def test_its_result_alone_is_left_where_answers_are_kept() -> None:
    sim, _ = played("answers")
    assert [*kept(sim).values()] == ["Task: Add up.\nAnswer: three"]


def test_a_plan_is_made_from_what_is_known_of_earlier_work() -> None:
    sim = begun(fields={"memory": MemorySpec(recall=3)}, task="Add up.")
    (asked,) = sent(sim, ToolCall)
    assert (asked.tool, asked.arguments["query"]) == (RECALL, "Add up.")
    hit = {"text": "2. [failed] look: there is no sky", "agent": "boss", "at": 1.0, "scope": "agent"}
    sim.arrive(result(asked.id, {"hits": [hit]}))
    assert purpose(sim) == "make_plan"
    assert "Known from earlier work" in text(sim)
    assert "- 2. [failed] look: there is no sky" in text(sim)
    sim.say(content=plan({"task": "Go on."}))
    child = child_of(sim, tasks(sim)[0])
    assert purpose(child) == "act"
    sound(sim)
