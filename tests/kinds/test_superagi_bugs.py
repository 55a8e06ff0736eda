"""SuperAGI's bugs, each shown not to be here. `docs/guarantees.md` lists them with these tests, and further ones."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import cadre
from cadre.engine.chat import Transcript
from cadre.journal import events as ev
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.prompting.prompts import prompts_for
from cadre.protocol.memory import REMEMBER
from cadre.protocol.messages import Decision, ToolCall
from cadre.spec.agent import AgentSpec, MemorySpec
from cadre.spec.kinds import sections
from cadre.testing import Team
from kinds.goals.build import begun, goals_spec, says
from kinds.task_queue.test_task_queue import PLAIN, asked, done, purpose, queue_spec, state
from kinds.task_queue.test_task_queue import begun as queued
from kinds.workflow.built import decide, entered, run_of, workflow
from unit.loop.build import SimulatedRun, kinds, only, result, sent, sound

LOOK: dict[str, Any] = {"tool": {"name": "look", "arguments": {"at": "sky"}}}
EVIL = "__import__('pathlib').Path('evil').touch()"


def end_of(sim: SimulatedRun) -> ev.RunFinished:
    (end,) = [one for entry in sim.journal() for one in entry.events if isinstance(one, ev.RunFinished)]
    return end


def route(**options: str) -> dict[str, Any]:
    return {**LOOK, "route": {"instruction": "Which?", "options": options}}


def routed(said: str, **options: str) -> SimulatedRun:
    ends = {name: {"end": name} for name in options.values()}
    sim = run_of(workflow("seen", seen=route(**options), **ends))
    sim.arrive(result(sim.id(), "a letter", tool="look"))
    for _ in range(3):  # what cannot be used is asked for again
        if sim.run.model is not None:
            sim.say(content=said)
    return sim


def waiting(name: str = "clerk") -> AgentSpec:
    steps = {"rest": {"wait": "{{ inputs.seconds }}", "next": "done"}, "done": {"end": "{{ task }}"}}
    section = msgspec.convert({"start": "rest", "steps": steps}, WorkflowSpec)
    return AgentSpec(name=name, description="Waits.", kind="workflow", **sections(section))


# --- 1


def test_bug_1_nothing_that_a_model_or_tool_writes_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun().say(content=f'{{"thoughts": {{}}, "tool": {{"name": "add", "args": {{"a": {EVIL}, "b": 1}}}}}}')
    begun().say(content=EVIL)
    for content in (EVIL, f"[{EVIL}]", f'{{"tasks": [{EVIL}]}}', json.dumps([EVIL])):
        sim = queued()
        sim.say(content=content)
    assert state(sim).pending == [EVIL]
    done(sim, EVIL)
    routed(EVIL, yes="calm")
    sim = run_of(workflow("seen", seen={**LOOK, "next": "end"}, end={"end": "{{ seen }}"}))
    sim.arrive(result(sim.id(), f"{{{{ {EVIL} }}}}", tool="look"))
    assert end_of(sim).output == f"{{{{ {EVIL} }}}}"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("room", ["engine", "journal", "kinds", "loop", "automation", "spec"])
def test_bug_1_no_module_that_reads_what_models_write_can_evaluate(room: str) -> None:
    modules = [*(Path(cadre.__file__).parent / room).rglob("*.py")]
    names = {
        node.id for file in modules for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)
    }
    assert modules
    assert not names & {"eval", "exec", "compile", "__import__"}


# --- 2


def test_bug_2_no_pause_between_iterations() -> None:
    sim = begun()
    for _ in range(3):
        called = says(sim, "add", a=1, b=2)
        assert only(called, ev.ToolCalled)
        assert kinds(sim.arrive(result(sim.run.open_calls()[0].id, 3)))[-1] == "ModelCalled"
    assert not [entry for entry in sim.journal() if "WaitStarted" in kinds(entry.events)]


async def test_bug_2_a_wait_ends_when_its_time_has_come() -> None:
    async with Team([waiting()]) as team:
        run = await team.start("clerk", "rested", inputs={"seconds": 86_400 * 40})
        began = team.now()
        assert await run.result() == "rested"
        assert abs(team.now() - began - 86_400 * 40) < 1


# --- 3 and 4


@pytest.mark.parametrize("content", ["null", "{", "[", "I am thinking…", '{"tool": null}', ""])
@pytest.mark.parametrize(
    "begin", [begun, queued, lambda: run_of(workflow("seen", seen=route(yes="calm"), calm={"end": "calm"}))]
)
def test_bug_3_answers_that_cannot_be_used_end_the_run_with_a_reason(
    begin: Callable[[], SimulatedRun], content: str
) -> None:
    sim = begin()
    if sim.run.open_calls():
        sim.arrive(result(sim.id(), "a letter", tool="look"))
    for _ in range(60):
        if sim.run.model is None:
            break
        sim.say(content=content)
    end = end_of(sim)
    assert end.state in ("error", "max_steps_error")
    assert end.error is not None
    assert end.error.message


def test_bug_3_a_way_that_does_not_exist_is_an_error_with_a_name() -> None:
    error = end_of(routed("maybe", yes="calm")).error
    assert error is not None
    assert error.type == "NoRoute"


def test_bug_3_a_run_that_is_older_than_a_day_goes_on() -> None:
    sim = begun()
    says(sim, "add", a=1, b=2)
    sim.at += 400 * 86_400
    assert kinds(sim.arrive(result(sim.id(), 3)))[-1] == "ModelCalled"
    assert only(says(sim, "finish", response="3"), ev.RunFinished).state == "success"


async def test_bug_4_an_error_is_in_the_journal_though_nobody_looks() -> None:
    async with Team([goals_spec()], [], lambda _: "I shall think about it.") as team:
        run = await team.start("boss", "Add up.")
        await run.settle()
        events = [event for entry in team.journal(run.id) for event in entry.events]
    assert only(events, ev.RunFinished).state == "error"


# --- 5 and 6


async def test_bug_5_two_runs_of_one_workflow_wait_each_by_itself() -> None:
    async with Team([waiting()]) as team:
        slow = await team.start("clerk", "slow", inputs={"seconds": 3_600})
        quick = await team.start("clerk", "quick", inputs={"seconds": 60})
        began = team.now()
        assert await quick.result() == "quick"
        assert team.now() - began < 61
        assert slow.run.result is None
        assert await slow.result() == "slow"
        assert abs(team.now() - began - 3_600) < 1


def test_bug_6_a_step_is_run_once_however_often_people_and_services_speak() -> None:
    sim = run_of(
        workflow("seen", {"permission": "restricted"}, seen={**LOOK, "next": "done"}, done={"end": "{{ seen }}"})
    )
    held = sim.run.open_calls()[0].id
    decide(sim, "approved")
    again = msgspec.convert(
        {
            "type": "decision",
            "id": "again",
            "tree": "r1",
            "run": "r1",
            "at": 2.0,
            "call": held,
            "verdict": "approved",
        },
        Decision,
    )
    sim.arrive(again)
    assert len(sent(sim, ToolCall)) == 1
    sim.arrive(result(held, "blue", tool="look"))
    sim.arrive(result(held, "red", tool="look"))
    assert entered(sim) == ["seen", "done"]
    assert end_of(sim).output == "blue"
    sound(sim)


# --- 7


@pytest.mark.parametrize("verdict", ["approved", "rejected"])
def test_bug_7_permission_holds_in_workflows(verdict: str) -> None:
    steps: dict[str, Any] = {
        "seen": {**LOOK, "next": "did", "on_error": "no"},
        "did": {"end": "did"},
        "no": {"end": "{{ error.message }}"},
    }
    sim = run_of(workflow("seen", {"permission": "restricted"}, **steps))
    assert sent(sim, ToolCall) == []
    decide(sim, verdict, "not that")
    if verdict == "approved":
        sim.arrive(result(sim.run.open_calls()[0].id, "blue", tool="look"))
        assert end_of(sim).output == "did"
    else:
        assert "not that" in end_of(sim).output
        assert sent(sim, ToolCall) == []


# --- 8


def test_bug_8_what_a_task_queue_found_is_remembered() -> None:
    sim = SimulatedRun(queue_spec(memory=MemorySpec(remember="answers"))).begin("Be done by noon.")
    sim.say(content='["one"]')
    done(sim)
    sim.say(content="All is done.")
    (kept,) = [one for one in sent(sim, ToolCall) if one.tool == REMEMBER]
    assert kept.arguments["text"] == "Task: Be done by noon.\nAnswer: All is done."
    assert kept.origin is not None


def test_bug_8_no_variable_is_left_open_in_a_prompt() -> None:
    requests = [begun(), queued()]
    sim = queued(TaskQueueSpec(goals=["Empty the inbox."]), "one", "two", "three")
    requests.append(sim)
    for _ in range(4):
        requests.append(sim)
        texts = [str(message["content"]) for message in asked(sim).messages]
        assert not [text for text in texts if "{goals}" in text or "{{" in text or "{summary}" in text]
        if purpose(sim) == "analyse":
            done(sim)
        else:
            sim.say(content="[]")
    sim = run_of(workflow("sum", sum={"tool": {"name": "add", "instruction": "Add up."}}), "The goal is six.")
    assert sim.run.model is not None
    told = Transcript(prompts_for(sim.spec)).request(sim.run, sim.run.model.purpose).messages
    assert "The goal is six." in str(told[-1]["content"])


# --- 9 and 10


def test_bug_9_tasks_are_done_in_their_order_and_a_single_one_is_done_too() -> None:
    sim = queued(PLAIN, "one", "two", "three")
    for _ in range(3):
        done(sim)
    assert [task.task for task in state(sim).done] == ["one", "two", "three"]
    sim = queued(PLAIN, "alone")
    done(sim)
    assert purpose(sim) == "conclude"


@pytest.mark.parametrize("label", ["yes", "certainly"])
def test_bug_10_two_labels_may_lead_to_one_step(label: str) -> None:
    assert end_of(routed(label, yes="calm", certainly="calm", no="drop")).output == "calm"


def test_bug_10_the_instructions_of_an_agent_reach_its_model() -> None:
    for sim in (begun(instructions="Be brief."), queued(instructions="Be brief.")):
        assert sim.run.model is not None
        request = Transcript(prompts_for(sim.spec)).request(sim.run, sim.run.model.purpose)
        assert "Be brief." in str(request.messages)
