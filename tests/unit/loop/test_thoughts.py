"""Thoughts that a model writes into its text stay in the journal: no step, answer, summary or memory holds them."""

from typing import Any

import msgspec
import pytest

from cadre.engine.chat import Transcript
from cadre.engine.recall import to_remember
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, PlanningStep
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.spec.agent import Limits, MemorySpec
from cadre.spec.kinds import sections
from unit.loop.build import SimulatedRun, call, only, result, sound, spec
from unit.loop.memory_world import PROMPTS
from unit.loop.test_context import full, purpose

SECRET = "SECRET"
THOUGHTS = [
    "<think>\nSECRET\n</think>\n\n{}",
    "<thinking>SECRET</thinking>{}",
    "<reasoning effort='low'>SECRET</reasoning>{}",
    "[THINK]SECRET[/THINK]{}",
    "◁think▷SECRET◁/think▷{}",
    "<|START_THINKING|>SECRET<|END_THINKING|>{}",
    "<seed:think>SECRET</seed:think>{}",
    "<|START_THINKING|>SECRET<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
    "<|begin_of_thought|>SECRET<|end_of_thought|>\n<|begin_of_solution|>\n{}\n<|end_of_solution|>",
    "<think>SECRET</think>\n<answer>{}</answer>",
    "<|channel>thought\nSECRET<channel|>{}",
    "SECRET\n[BEGIN FINAL RESPONSE]{}[END FINAL RESPONSE]",
    "SECRET\n</think>\n{}",
    "{}\n<think>SECRET",
    "<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
    "analysisWe SECRETassistantfinal{}",
]


def last_word(said: str, **fields: Any) -> Any:
    sim = SimulatedRun(spec(limits=Limits(max_steps=1), **fields)).begin()
    sim.say(content="no call")
    finished = only(sim.say(content=said), ev.RunFinished)
    sound(sim)
    return finished.output


@pytest.mark.parametrize("thought", THOUGHTS)
def test_a_plan_and_a_step_are_without_thoughts(thought: str) -> None:
    sim = SimulatedRun(spec(planning_interval=1, memory=MemorySpec(remember="steps"))).begin()
    answered = only(sim.say(content=thought.format("1. Look.")), ev.ModelAnswered)
    assert answered.content.strip() == "1. Look."
    said = thought.format("I look.")
    sim.say(call("look", at="a"), content=said)
    sim.arrive(result("r1_1_0", "seen"))
    planned, acted = [one for one in sim.run.steps if isinstance(one, PlanningStep | ActionStep)][:2]
    assert SECRET not in str((planned, acted))
    request = Transcript(PROMPTS).request(sim.run, "plan")
    assert SECRET not in str(request.messages)
    assert SECRET not in str(to_remember(sim.run, 0))
    # The answer is journaled as it came, and decided from that again.
    assert SECRET in msgspec.json.encode(sim.journal()).decode()
    sound(sim)


@pytest.mark.parametrize("thought", THOUGHTS)
def test_a_last_word_is_without_thoughts(thought: str) -> None:
    assert last_word(thought.format("The answer.")) == "The answer."


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("thought", [*THOUGHTS, "{}"])
@pytest.mark.parametrize(
    "written",
    [
        '{"n": 1}',
        '```json\n{"n": 1}\n```',
        '```\n{"n": 1}\n```\nThat is all.',
        'The answer:\n{"n": 1}\nas asked.',
        '{"answer": {"n": 1}}',
        '{"n": 1,}',
        'Not {"m": 2}, but {"n": 1}.',
    ],
)
def test_a_last_word_is_read_by_the_schema(thought: str, written: str) -> None:
    assert last_word(thought.format(written), output_schema=NUMBER) == {"n": 1}


@pytest.mark.parametrize("text", ["The tags <think> and </think> enclose it.", "Write `</think>` at the end."])
def test_a_last_word_may_speak_of_tags(text: str) -> None:
    assert last_word(text) == text


def test_the_last_question_holds_the_schema_and_can_do_without_the_form() -> None:
    sim = SimulatedRun(spec(limits=Limits(max_steps=1), output_schema=NUMBER)).begin()
    sim.say(content="no call")
    request = Transcript(PROMPTS).request(sim.run, "final")
    assert request.schema is not None
    assert not request.is_form_needed
    assert '"integer"' in request.messages[-1]["content"]


@pytest.mark.parametrize("thought", THOUGHTS)
def test_a_summary_is_without_thoughts(thought: str) -> None:
    sim = full()
    assert purpose(sim) == "summary"
    assert only(sim.say(content=thought.format("So far.")), ev.HistorySummarized).text == "So far."


def test_the_thoughts_before_an_answer_are_no_part_of_it() -> None:
    sim = SimulatedRun().begin()
    said = call("final_answer", answer="<think>SECRET</think>42")
    assert only(sim.say(said), ev.RunFinished).output == "42"


@pytest.mark.parametrize("thought", THOUGHTS[:-2])
def test_code_keeps_the_tags_in_its_texts(thought: str) -> None:
    sim = SimulatedRun(spec(kind="code", tools=[], team=[])).begin()
    code = "<code>\nx = text.split('</think>')\n</code>"
    answered = only(sim.say(content=thought.format(code)), ev.ModelAnswered)
    assert SECRET not in answered.content
    assert code in answered.content


def test_what_a_queue_thinks_through_is_without_thoughts() -> None:
    agent = spec(kind="task_queue", tools=[], team=[], **sections(TaskQueueSpec(goals=["G."])))
    sim = SimulatedRun(agent).begin("Do it.")
    sim.say(content='["one"]')
    sim.say(content='{"thoughts": {}, "tool": {"name": "think", "args": {"task_description": "How?"}}}')
    sim.say(content="<think>SECRET</think>So.")
    assert SECRET not in msgspec.json.encode(sim.run).decode()
    sound(sim)
