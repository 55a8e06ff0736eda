"""SuperAGI's bugs, each shown not to be here. `docs/kinds.md` lists them with these tests, and further ones."""

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
from cadre.spec.sections import sections
from cadre.testing import Team
from kinds.goals.build import begun, goals_spec, says
from kinds.task_queue.test_task_queue import PLAIN, asked, done, purpose, queue_spec, state
from kinds.task_queue.test_task_queue import begun as queued
from kinds.workflow.built import decide, entered, run_of, workflow
from unit.loop.build import Course, kinds, only, result, sent, sound

LOOK: dict[str, Any] = {"tool": {"name": "look", "arguments": {"at": "sky"}}}
EVIL = "__import__('pathlib').Path('evil').touch()"


def end_of(course: Course) -> ev.RunFinished:
    (end,) = [one for entry in course.journal() for one in entry.events if isinstance(one, ev.RunFinished)]
    return end


def route(**options: str) -> dict[str, Any]:
    return {**LOOK, "route": {"instruction": "Which?", "options": options}}


def routed(said: str, **options: str) -> Course:
    ends = {name: {"end": name} for name in options.values()}
    course = run_of(workflow("seen", seen=route(**options), **ends))
    course.arrive(result(course.id(), "a letter", tool="look"))
    for _ in range(3):  # what cannot be used is asked for anew
        if course.run.model is not None:
            course.say(content=said)
    return course


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
        course = queued()
        course.say(content=content)
    assert state(course).pending == [EVIL]
    done(course, EVIL)
    routed(EVIL, yes="calm")
    course = run_of(workflow("seen", seen={**LOOK, "next": "end"}, end={"end": "{{ seen }}"}))
    course.arrive(result(course.id(), f"{{{{ {EVIL} }}}}", tool="look"))
    assert end_of(course).output == f"{{{{ {EVIL} }}}}"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("room", ["engine", "journal", "kinds", "loop", "automation", "spec"])
def test_bug_1_no_module_that_reads_what_models_write_can_evaluate(room: str) -> None:
    modules = [*(Path(cadre.__file__).parent / room).rglob("*.py")]
    names = {
        node.id
        for file in modules
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Name)
    }
    assert modules
    assert not names & {"eval", "exec", "compile", "__import__"}


# --- 2


def test_bug_2_no_pause_between_iterations() -> None:
    course = begun()
    for _ in range(3):
        called = says(course, "add", a=1, b=2)
        assert only(called, ev.ToolCalled)
        assert kinds(course.arrive(result(course.run.open_calls()[0].id, 3)))[-1] == "ModelCalled"
    assert not [entry for entry in course.journal() if "WaitStarted" in kinds(entry.events)]


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
    begin: Callable[[], Course], content: str
) -> None:
    course = begin()
    if course.run.open_calls():
        course.arrive(result(course.id(), "a letter", tool="look"))
    for _ in range(60):
        if course.run.model is None:
            break
        course.say(content=content)
    end = end_of(course)
    assert end.state in ("error", "max_steps_error")
    assert end.error is not None
    assert end.error.message


def test_bug_3_a_way_that_does_not_exist_is_an_error_with_a_name() -> None:
    error = end_of(routed("maybe", yes="calm")).error
    assert error is not None
    assert error.type == "NoRoute"


def test_bug_3_a_run_that_is_older_than_a_day_goes_on() -> None:
    course = begun()
    says(course, "add", a=1, b=2)
    course.at += 400 * 86_400
    assert kinds(course.arrive(result(course.id(), 3)))[-1] == "ModelCalled"
    assert only(says(course, "finish", response="3"), ev.RunFinished).state == "success"


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
        assert slow.state.result is None
        assert await slow.result() == "slow"
        assert abs(team.now() - began - 3_600) < 1


def test_bug_6_a_step_is_run_once_however_often_people_and_services_speak() -> None:
    course = run_of(
        workflow(
            "seen", {"permission": "restricted"}, seen={**LOOK, "next": "done"}, done={"end": "{{ seen }}"}
        )
    )
    held = course.run.open_calls()[0].id
    decide(course, "approved")
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
    course.arrive(again)
    assert len(sent(course, ToolCall)) == 1
    course.arrive(result(held, "blue", tool="look"))
    course.arrive(result(held, "red", tool="look"))
    assert entered(course) == ["seen", "done"]
    assert end_of(course).output == "blue"
    sound(course)


# --- 7


@pytest.mark.parametrize("verdict", ["approved", "rejected"])
def test_bug_7_permission_holds_in_workflows(verdict: str) -> None:
    steps: dict[str, Any] = {
        "seen": {**LOOK, "next": "did", "on_error": "no"},
        "did": {"end": "did"},
        "no": {"end": "{{ error.message }}"},
    }
    course = run_of(workflow("seen", {"permission": "restricted"}, **steps))
    assert sent(course, ToolCall) == []
    decide(course, verdict, "not that")
    if verdict == "approved":
        course.arrive(result(course.run.open_calls()[0].id, "blue", tool="look"))
        assert end_of(course).output == "did"
    else:
        assert "not that" in end_of(course).output
        assert sent(course, ToolCall) == []


# --- 8


def test_bug_8_what_a_task_queue_found_is_remembered() -> None:
    course = Course(queue_spec(memory=MemorySpec(remember="answers"))).begin("Be done by noon.")
    course.say(content='["one"]')
    done(course)
    course.say(content="All is done.")
    (kept,) = [one for one in sent(course, ToolCall) if one.tool == REMEMBER]
    assert kept.arguments["text"] == "Task: Be done by noon.\nAnswer: All is done."
    assert kept.origin is not None


def test_bug_8_no_variable_is_left_open_in_a_prompt() -> None:
    requests = [begun(), queued()]
    course = queued(TaskQueueSpec(goals=["Empty the inbox."]), "one", "two", "three")
    requests.append(course)
    for _ in range(4):
        requests.append(course)
        texts = [str(message["content"]) for message in asked(course).messages]
        assert not [text for text in texts if "{goals}" in text or "{{" in text or "{summary}" in text]
        if purpose(course) == "analyse":
            done(course)
        else:
            course.say(content="[]")
    course = run_of(
        workflow("sum", sum={"tool": {"name": "add", "instruction": "Add up."}}), "The goal is six."
    )
    assert course.run.model is not None
    told = Transcript(prompts_for(course.spec)).request(course.run, course.run.model.purpose).messages
    assert "The goal is six." in str(told[-1]["content"])


# --- 9 and 10


def test_bug_9_tasks_are_done_in_their_order_and_a_single_one_is_done_too() -> None:
    course = queued(PLAIN, "one", "two", "three")
    for _ in range(3):
        done(course)
    assert [task.task for task in state(course).done] == ["one", "two", "three"]
    course = queued(PLAIN, "alone")
    done(course)
    assert purpose(course) == "conclude"


@pytest.mark.parametrize("label", ["yes", "certainly"])
def test_bug_10_two_labels_may_lead_to_one_step(label: str) -> None:
    assert end_of(routed(label, yes="calm", certainly="calm", no="drop")).output == "calm"


def test_bug_10_the_instructions_of_an_agent_reach_its_model() -> None:
    for course in (begun(instructions="Be brief."), queued(instructions="Be brief.")):
        assert course.run.model is not None
        request = Transcript(prompts_for(course.spec)).request(course.run, course.run.model.purpose)
        assert "Be brief." in str(request.messages)
