"""Tests of what the model reads: the messages of each kind of step, in structure; their wording is the prompts'."""

import json
from typing import Any

import msgspec
import pytest

from cadre.engine import chat
from cadre.engine.chat import LONGEST_CALL_ID, Transcript
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.run import Run, Step
from cadre.kinds.stepwise import END_PLAN
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import Limits
from cadre.spec.model import ModelSpec
from unit.loop.build import (
    ADD,
    ANSWER,
    KID,
    LOOK,
    OFFER,
    SimulatedRun,
    call,
    only,
    report,
    result,
    spec,
    task,
)

PROMPTS = Prompts.load("tool_calling")
TOOLS, MEMBERS = [ADD, LOOK], [KID]


def asked(sim: SimulatedRun, transcript: Transcript | None = None) -> ModelRequest:
    """The request of the model call in flight."""
    assert sim.run.model is not None
    return (transcript or Transcript(PROMPTS)).request(sim.run, sim.run.model.purpose)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def function(id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    text = msgspec.json.encode(arguments).decode()
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def tool(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


SYSTEM = {"role": "system", "content": PROMPTS.system(TOOLS, MEMBERS, "")}
TASK = user(PROMPTS.new_task("Do it."))


def test_the_first_request() -> None:
    request = asked(SimulatedRun().begin())
    assert request.messages == [SYSTEM, TASK]
    assert request.stop == []
    functions = [offered["function"] for offered in request.tools]
    assert [one["name"] for one in functions] == ["add", "look", "kid", "final_answer"]
    assert functions[0]["parameters"] == ADD.input_schema
    assert list(functions[2]["parameters"]["properties"]) == ["task", "additional_args"]
    assert functions[3]["parameters"]["required"] == ["answer"]


def test_instructions_reach_the_system_message() -> None:
    request = asked(SimulatedRun(spec(instructions="Be brief.")).begin())
    assert request.messages[0]["content"] == PROMPTS.system(TOOLS, MEMBERS, "Be brief.")
    assert "Be brief." in request.messages[0]["content"]


def test_images_stand_in_the_task_message_and_once() -> None:
    sim = SimulatedRun().begin(images=["blob:1", "https://x/y.png"])
    sim.say(content="no call")
    sim.say(call("add", a=1, b=1))
    sim.arrive(result("r1_2_0", 2))
    messages = asked(sim).messages
    assert messages[1]["content"] == [
        {"type": "text", "text": PROMPTS.new_task("Do it.")},
        {"type": "image_url", "image_url": {"url": "blob:1"}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
    ]
    assert json.dumps(messages).count("image_url") == 4


def test_native_calls_and_their_observations() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2), call("kid", task="x"), call("nope", k=1), call("add", a=0, b=0), content="Hm.")
    sim.arrive(report("r1_1_1", "All done."))
    sim.arrive(result("r1_1_3", error=ErrorInfo("tool-failed", "kaput")))
    sim.arrive(result("r1_1_0", 3))
    answer, *observed = asked(sim).messages[2:]
    assert answer == {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": [
            function("r1_1_0", "add", {"a": 1, "b": 2}),
            function("r1_1_1", "kid", {"task": "x"}),
            function("r1_1_2", "nope", {"k": 1}),
            function("r1_1_3", "add", {"a": 0, "b": 0}),
        ],
    }
    assert observed[:2] == [tool("r1_1_0", "3"), tool("r1_1_1", "All done.")]
    assert observed[2]["tool_call_id"] == "r1_1_2"
    assert "'nope'" in observed[2]["content"]
    assert observed[3] == tool("r1_1_3", PROMPTS.error("kaput"))


def test_an_answer_of_calls_alone_has_no_content() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1))
    sim.arrive(result("r1_1_0", 2))
    assert asked(sim).messages[2]["content"] is None


def test_ids_of_calls_stay_within_what_the_api_takes_and_match() -> None:
    run = "0123456789abcdef0123456789abcdef_12_3_14_5"
    sim = SimulatedRun(run=run)
    sim.arrive(task(run=run))
    sim.say(*[call("add", a=1, b=1)] * 11)
    for index in range(11):
        sim.arrive(result(f"{run}_1_{index}", index))
    answer, *observed = asked(sim).messages[2:]
    ids = [one["id"] for one in answer["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in observed]
    assert len(set(ids)) == 11
    assert max(map(len, ids)) <= LONGEST_CALL_ID == 40


def test_an_answer_without_calls_is_followed_by_its_error_and_a_hint() -> None:
    sim = SimulatedRun().begin()
    error = only(sim.say(content="I know it: 3."), ev.StepFinished).error
    assert asked(sim).messages[2:] == [
        {"role": "assistant", "content": "I know it: 3."},
        user(PROMPTS.error(error.message)),
    ]


def test_calls_read_from_text_are_answered_in_text() -> None:
    sim = SimulatedRun().begin()
    text = '{"name": "add", "arguments": {"a": 1, "b": 2}} {"name": "nope", "arguments": {}}'
    sim.say(content=text)
    sim.arrive(result("r1_1_0", 3))
    answer, observed = asked(sim).messages[2:]
    assert answer == {"role": "assistant", "content": text}
    assert observed["role"] == "user"
    assert observed["content"].startswith("Observation:\nadd: 3\n\nnope: ")


def test_a_later_plan_reads_calls_from_text_without_the_words_around_them() -> None:
    sim = SimulatedRun(spec(planning_interval=1, model=ModelSpec(calls="text"))).begin()
    sim.say(content="1. Add.")
    sim.say(content='I add. {"name": "add", "arguments": {"a": 1, "b": 2}}')
    sim.arrive(result("r1_1_0", 3))
    answer = asked(sim).messages[2]
    assert answer == {"role": "assistant", "content": 'Calling tools:\nadd {"a":1,"b":2}'}


def test_a_members_call_is_shown_as_the_model_made_it() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("kid", task="Help."), call("kid", task="Help.", additional_args={"n": 1}))
    sim.arrive(report("r1_1_0", "one"))
    sim.arrive(report("r1_1_1", "two"))
    made = [json.loads(one["function"]["arguments"]) for one in asked(sim).messages[2]["tool_calls"]]
    assert made == [{"task": "Help."}, {"task": "Help.", "additional_args": {"n": 1}}]


def test_a_session_reads_an_answer_that_was_given_without_words() -> None:
    before = SimulatedRun().begin("First?")
    before.say(ANSWER)
    sim = SimulatedRun(run="r2")
    sim.arrive(task("Second?", run="r2"), history=before.run.steps)
    assert [message["role"] for message in asked(sim).messages] == ["system", "user", "assistant", "user"]
    assert asked(sim).messages[2]["content"] == "42"


def test_an_empty_answer_leaves_no_empty_message() -> None:
    sim = SimulatedRun().begin()
    sim.say(content="")
    assert asked(sim).messages[2]["content"]


def test_a_plan_is_asked_for_without_functions_and_kept_in_two_messages() -> None:
    sim = SimulatedRun(spec(planning_interval=2)).begin()
    request = asked(sim)
    assert request.messages == [user(PROMPTS.initial_plan("Do it.", TOOLS, MEMBERS))]
    assert (request.tools, request.stop) == ([], [END_PLAN])
    sim.say(content="1. Add.")
    assert asked(sim).messages == [
        SYSTEM,
        TASK,
        {"role": "assistant", "content": PROMPTS.plan("1. Add.", first=True)},
        user(PROMPTS.proceed()),
    ]


def test_a_later_plan_reads_the_memory_in_summary() -> None:
    sim = SimulatedRun(spec(planning_interval=2, limits=Limits(max_steps=9))).begin()
    sim.say(content="1. Add.")
    sim.say(call("add", a=1, b=1), content="I add.")
    sim.arrive(result("r1_1_0", 2))
    error = only(sim.say(content="prose"), ev.StepFinished).error
    asks_for_plan = PROMPTS.update_plan_post("Do it.", TOOLS, MEMBERS, 7)
    assert asked(sim).messages == [
        {"role": "system", "content": PROMPTS.update_plan_pre("Do it.")},
        TASK,
        {"role": "assistant", "content": 'Calling tools:\nadd {"a":1,"b":1}'},
        user(f"Observation:\n2\n\n{PROMPTS.error(error.message)}\n\n{asks_for_plan}"),
    ], "no functions are offered, so none may stand in the messages; roles take turns"
    sim.say(content="2. Answer.")
    assert asked(sim).messages[-2]["content"] == PROMPTS.plan("2. Answer.", first=False)


def test_the_answer_after_the_last_step_is_asked_for_over_the_whole_memory() -> None:
    sim = SimulatedRun().begin(max_steps=1)
    sim.say(call("add", a=1, b=1), content="I add.")
    sim.arrive(result("r1_1_0", 2))
    request = asked(sim)
    assert request.messages[0] == {"role": "system", "content": PROMPTS.final_pre()}
    assert request.messages[1] == TASK
    assert [message["role"] for message in request.messages[2:]] == ["assistant", "user"]
    assert request.messages[2]["content"] == 'I add.\nCalling tools:\nadd {"a":1,"b":1}'
    assert request.messages[-1] == user("Observation:\n2\n\n" + PROMPTS.final_post("Do it."))
    assert (request.tools, request.stop) == ([], [])


def test_a_delegated_task_is_shown_through_the_members_own_prompt() -> None:
    sim = SimulatedRun(run="r1_1_0")
    sim.arrive(task("Find it.", run="r1_1_0", parent="r1"))
    text = PROMPTS.managed_task("boss", "Find it.")
    assert asked(sim).messages[1] == user(PROMPTS.new_task(text))


def test_a_session_reads_on_and_plans_as_an_update() -> None:
    before = SimulatedRun().begin("First?")
    before.say(ANSWER, content="Easy.")
    sim = SimulatedRun(spec(planning_interval=1), run="r2")
    sim.arrive(task("And then?", run="r2"), history=before.run.steps)
    messages = asked(sim).messages
    assert messages[0]["content"] == PROMPTS.update_plan_pre("And then?")
    assert user(PROMPTS.new_task("First?")) in messages
    assert {"role": "assistant", "content": "42"} in messages
    sim.say(content="a plan")
    messages = asked(sim).messages
    assert messages[1] == user(PROMPTS.new_task("First?"))
    assert messages[-3] == user(PROMPTS.new_task("And then?"))
    assert messages[-2]["content"] == PROMPTS.plan("a plan", first=False)


def test_functions_follow_the_offer() -> None:
    sim, transcript = SimulatedRun().begin(), Transcript(PROMPTS)
    assert len(asked(sim, transcript).tools) == 4
    sim.toolset = msgspec.structs.replace(OFFER, members={})
    sim.say(content="no call")
    request = asked(sim, transcript)
    assert [one["function"]["name"] for one in request.tools] == ["add", "look", "final_answer"]
    assert request.messages[0]["content"] == PROMPTS.system(TOOLS, [], "")
    sim.toolset = msgspec.structs.replace(sim.toolset, tools={"look": LOOK})
    sim.say(content="no call")
    request = asked(sim, transcript)
    assert [one["function"]["name"] for one in request.tools] == ["look", "final_answer"]


def test_a_step_is_rendered_once_however_often_the_model_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Step] = []
    real = chat.messages_of

    def counted(step: Step, run: Run, prompts: Prompts) -> list[dict[str, Any]]:
        rendered.append(step)
        return real(step, run, prompts)

    monkeypatch.setattr(chat, "messages_of", counted)
    sim, transcript = SimulatedRun(spec(planning_interval=3, limits=Limits(max_steps=60))).begin(), None
    transcript = Transcript(PROMPTS)
    per_request: dict[str, set[int]] = {"act": set(), "plan": set(), "final": set()}
    while sim.run.model is not None:
        purpose, before = sim.run.model.purpose, len(rendered)
        asked(sim, transcript)
        per_request[purpose].add(len(rendered) - before)
        sim.say(content="no call")
    assert len(rendered) == len(sim.run.steps) - 1, "all but the answer"
    assert max(count for counts in per_request.values() for count in counts) <= 1


def test_a_failed_member_is_told_of_once() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("kid", task="try"))
    sim.arrive(report("r1_1_0", "it broke", "error", error=ErrorInfo("no-answer", "it broke")))
    assert str(asked(sim).messages[-1]["content"]).count("it broke") == 1
