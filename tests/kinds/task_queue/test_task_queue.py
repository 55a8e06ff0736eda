"""Agents that work through a queue of tasks, story by story: made, done one by one, added to, ordered, concluded."""

import json
from typing import Any

import msgspec
import pytest

from cadre.engine.chat import Transcript
from cadre.engine.contract import inputs_of
from cadre.engine.model_request import ModelRequest
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.run import ActionStep
from cadre.kinds.task_queue.records import (
    QueueAnswerRefused,
    QueueChanged,
    QueueState,
    QueueTaskDone,
    QueueTaskTried,
    TaskQueueSpec,
)
from cadre.loop.fork import next_step, prefix_of
from cadre.prompting.prompts import prompts_for
from cadre.protocol.messages import Decision, ErrorInfo, Fork
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.kinds import sections
from cadre.spec.model import ModelSpec
from harness.texts import holds
from kinds.goals.build import answer, says
from unit.loop.build import SimulatedRun, kinds, only, result, sound, spec, task

PLAIN = TaskQueueSpec(goals=["Empty the inbox."], create=False, prioritize=False, iterations=30)


def queue_spec(section: TaskQueueSpec = PLAIN, **fields: Any) -> AgentSpec:
    return spec(kind="task_queue", **sections(section), **fields)


def begun(section: TaskQueueSpec = PLAIN, *tasks: str, **fields: Any) -> SimulatedRun:
    sim = SimulatedRun(queue_spec(section, **fields)).begin("Be done by noon.")
    if tasks:
        sim.say(content=json.dumps(tasks))
    return sim


def state(sim: SimulatedRun) -> QueueState:
    assert isinstance(sim.run.own, QueueState)
    return sim.run.own


def purpose(sim: SimulatedRun) -> str:
    assert sim.run.model is not None
    return sim.run.model.purpose


def asked(sim: SimulatedRun) -> ModelRequest:
    return Transcript(prompts_for(sim.spec)).request(sim.run, purpose(sim))


def text(sim: SimulatedRun) -> str:
    return "\n".join(str(message["content"]) for message in asked(sim).messages)


def done(sim: SimulatedRun, value: Any = 3) -> list[ev.AnyEvent]:
    """The model adds up for the task in hand, and the tool answers."""
    says(sim, "add", a=1, b=2)
    return sim.arrive(result(sim.run.open_calls()[0].id, value))


def failed(sim: SimulatedRun) -> list[ev.AnyEvent]:
    says(sim, "add", a=1, b=2)
    answered = result(sim.run.open_calls()[0].id, None)
    return sim.arrive(msgspec.structs.replace(answered, error=ErrorInfo("tool-failed", "no abacus")))


def test_the_first_tasks_are_made_and_done_in_their_order() -> None:
    sim = begun()
    assert purpose(sim) == "initialize"
    assert "1. Empty the inbox.\n2. Be done by noon." in text(sim)
    events = sim.say(content='["one", "two"]')
    assert kinds(events) == ["ModelAnswered", "QueueChanged", "StepFinished", "StepStarted", "ModelCalled"]
    assert "Current task: one" in text(sim)
    assert "- two" in text(sim)
    events = done(sim)
    assert kinds(events) == ["ToolAnswered", "QueueTaskDone", "StepFinished", "StepStarted", "ModelCalled"]
    assert only(events, QueueTaskDone) == QueueTaskDone(step=2, task="one", result="3")
    assert "Current task: two" in text(sim)
    assert "- one: 3" in text(sim)
    done(sim, 4)
    assert purpose(sim) == "conclude"
    assert "- one: 3\n- two: 4" in text(sim)
    end = sim.say(content="All is done.")[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, end.output) == ("success", "All is done.")
    sound(sim)


def test_no_more_tasks_than_three_to_begin_with_and_none_twice() -> None:
    sim = begun(PLAIN, "one", "One ", "two", "", "three", "four")
    assert state(sim).pending == ["one", "two", "three"]


@pytest.mark.parametrize(
    "content",
    [
        "```json\n['one', 'two',]\n```",
        '{"tasks": ["one", "two"]}',
        'First: [{"task": "one"}, {"task": "two"}]',
    ],
)
def test_tasks_are_read_with_patience(content: str) -> None:
    sim = begun()
    sim.say(content=content)
    assert state(sim).pending == ["one", "two"]


def test_each_task_has_a_history_of_its_own() -> None:
    sim = begun(PLAIN, "one", "two")
    failed(sim)
    assert "Tool add returned: Error: no abacus" in text(sim)
    done(sim)
    assert "abacus" not in text(sim)
    assert [message["role"] for message in asked(sim).messages] == ["system", "system", "user"]


def test_a_failed_call_keeps_the_task_and_in_the_end_it_is_told() -> None:
    sim = begun(PLAIN, "one", "two")
    events = failed(sim)
    assert only(events, QueueTaskTried) == QueueTaskTried(step=2, task="one", reason="no abacus")
    failed(sim)
    assert state(sim).pending == ["one", "two"]
    given_up = only(failed(sim), QueueTaskDone)
    assert (given_up.task, given_up.failed, given_up.result) == ("one", True, "no abacus")
    assert "- one: failed: no abacus" in text(sim)
    sound(sim)


def test_a_task_may_be_done_without_a_tool_or_by_a_thought() -> None:
    sim = begun(PLAIN, "one", "two")
    assert only(says(sim, "", response="known"), QueueTaskDone).result == "known"
    assert kinds(says(sim, "think", task_description="How?"))[-1] == "ModelCalled"
    assert purpose(sim) == "think"
    assert "How?" in text(sim)
    assert only(sim.say(content="Like this."), QueueTaskDone).result == "Like this."
    sound(sim)


def test_unknown_tools_and_what_cannot_be_read_are_tries() -> None:
    sim = begun(PLAIN, "one")
    assert "'fly'" in only(says(sim, "fly"), QueueTaskTried).reason
    assert "JSON" in only(sim.say(content="Hm."), QueueTaskTried).reason
    assert "JSON" in text(sim)
    sound(sim)


GARBAGE = ['["a", "b"]', '["{}"]', '{"tasks": ["a"]}']


@pytest.mark.parametrize("content", GARBAGE)
def test_a_run_in_which_nothing_was_done_is_no_success(content: str) -> None:
    sim = begun(TaskQueueSpec(goals=["G."], most=3, iterations=60))
    events: list[ev.AnyEvent] = []
    while sim.run.result is None:
        events = sim.say(content=content)
    end = only(events, ev.RunFinished)
    assert (end.state, end.error.code) == ("error", "nothing-done")
    assert state(sim).done[-1].result in end.error.message
    sound(sim)


def test_calls_that_failed_are_concluded_from() -> None:
    sim = begun(TaskQueueSpec(goals=["G."], create=False, tries=1), "one")
    failed(sim)
    assert purpose(sim) == "conclude"
    assert only(sim.say(content="It cannot be done."), ev.RunFinished).state == "success"


def test_an_empty_conclusion_is_asked_for_again() -> None:
    sim = begun(TaskQueueSpec(goals=["G."], create=False, tries=2), "one")
    done(sim)
    assert not only(sim.say(content="<think>So.</think>"), QueueAnswerRefused).given_up
    assert only(sim.say(content="<think>So.</think>It is 3."), ev.RunFinished).output == "It is 3."


def test_one_task_is_added_or_none_and_never_one_twice() -> None:
    sim = begun(TaskQueueSpec(goals=["G."], prioritize=False, most=3), "one", "two")
    done(sim)
    assert purpose(sim) == "create"
    assert "The task done last: one\nWhat came of it: 3" in text(sim)
    sim.say(content='["ONE", "two", "three", "four"]')
    assert state(sim).pending == ["two", "three"]
    done(sim)
    assert purpose(sim) == "analyse", "three tasks are the most"
    done(sim)
    assert purpose(sim) == "conclude"
    sound(sim)


def test_an_order_is_a_permutation() -> None:
    sim = begun(TaskQueueSpec(goals=["G."], create=False, initial=9), "one", "two", "three", "four")
    done(sim)
    assert purpose(sim) == "prioritize"
    sim.say(content='["four", "invented", "two", "four"]')
    assert state(sim).pending == ["four", "two", "three"]
    sound(sim)


def test_an_answer_about_the_queue_that_cannot_be_read_is_asked_for_again_and_then_done_without() -> None:
    sim = begun(TaskQueueSpec(goals=["G."], tries=2), "one", "two", "three")
    done(sim)
    unread = only(sim.say(content="None."), QueueAnswerRefused)
    assert (unread.purpose, unread.given_up) == ("create", False)
    assert purpose(sim) == "create"
    assert "None." in text(sim)
    assert only(sim.say(content="None at all."), QueueAnswerRefused).given_up
    assert purpose(sim) == "prioritize"
    sim.say(content="As it is.")
    sim.say(content="As it was.")
    assert (purpose(sim), state(sim).pending) == ("analyse", ["two", "three"])
    sound(sim)


def test_without_tasks_the_run_ends_with_the_reason() -> None:
    sim = begun(limits=Limits(repeats=0))
    for content in ("[]", "No idea.", "null"):
        events = sim.say(content=content)
    end = events[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.error is not None
    assert (end.state, end.error.type) == ("error", "AgentParsingError")
    sound(sim)


def test_the_answer_fits_its_schema_and_passes_its_checks() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    sim = begun(PLAIN, "one", output_schema=schema, checks=["when: answer.n > 1"])
    done(sim)
    assert asked(sim).schema is not None
    sim.say(content="Three.")
    assert purpose(sim) == "conclude"
    assert '"Three."' in text(sim)
    sim.say(content='{"n": 1}')
    assert "when: answer.n > 1" in text(sim)
    end = sim.say(content='{"n": 3}')[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.output == {"n": 3}
    sound(sim)


def test_a_call_that_a_person_turns_down_is_a_try() -> None:
    sim = begun(PLAIN, "one", permission="restricted")
    assert kinds(says(sim, "add", a=1, b=2))[-1] == "ApprovalRequested"
    held = sim.run.open_calls()[0].id
    decision = Decision(id="d1", tree="r1", run="r1", at=2.0, call=held, verdict="rejected", feedback="Not now.")
    tried = only(sim.arrive(decision), QueueTaskTried)
    assert "Not now." in tried.reason
    assert "Not now." in text(sim)
    sound(sim)


def test_out_of_iterations_it_is_gone_on_with_where_it_stood() -> None:
    section = msgspec.structs.replace(PLAIN, iterations=2)
    sim = begun(section, "one", "two", "three")
    end = done(sim)[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, "add: 3" in end.output) == ("max_steps_error", True)
    at = next_step(sim.run)
    fork = Fork(run="r1", at=at)
    onward = SimulatedRun(queue_spec(section), run="r2")
    onward.arrive(task("Be done by noon.", run="r2", forks=fork, max_steps=12), prefix=prefix_of(sim.run, fork).steps)
    assert (state(onward).pending, [one.task for one in state(onward).done]) == (["two", "three"], ["one"])
    assert "- one: 3" in text(onward)
    done(onward)
    done(onward)
    assert isinstance(onward.say(content="Done.")[-1], ev.RunFinished)
    sound(onward)


def test_the_longest_queue_leaves_room_in_a_small_context() -> None:
    section = msgspec.structs.replace(PLAIN, initial=40, iterations=100)
    sim = begun(section, *(f"{n} " + "word " * 150 for n in range(40)), model=ModelSpec(context=8_000))
    for number in range(20):
        if purpose(sim) == "summary":
            sim.say(content="Much was found.")
        says(sim, "add", a=number, b=2)
        sim.arrive(result(sim.run.open_calls()[0].id, "found " * 400))
        assert len(text(sim)) < 4 * 8_000
    assert sum(isinstance(step, ActionStep) for step in sim.run.steps) >= 20


@pytest.mark.parametrize("key", ["initial", "most", "tries", "iterations"])
def test_a_section_that_cannot_hold_is_refused(key: str) -> None:
    with pytest.raises(SpecError, match="1") as refused:
        queue_spec(msgspec.structs.replace(PLAIN, **{key: 0}))
    assert refused.value.key == f"task_queue.{key}"


def test_its_changes_are_told_as_they_come() -> None:
    sim = begun()
    changed = only(sim.say(content='["one"]'), QueueChanged)
    assert changed == QueueChanged(step=1, reason="initialize", pending=["one"], added=["one"])
    assert "tool" in answer("add")


def test_variables_in_its_texts_are_filled_from_the_inputs() -> None:
    section = msgspec.structs.replace(PLAIN, goals=["Find {{ city }}."], constraints=["Not {{ city }}'s suburbs."])
    sim = SimulatedRun(queue_spec(section, instructions="Use {{ city }}."))
    sim.begin("Go.", inputs={"city": "Oslo"})
    for _ in range(2):
        told = text(sim)
        assert holds(told, "Find Oslo.", "Not Oslo's suburbs.", "Use Oslo.")
        sim.say(content='["Look"]')
    sound(sim)
    assert inputs_of(queue_spec(section)).needed == {"city"}
