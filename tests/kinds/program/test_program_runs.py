"""Runs of programs as the loop decides them: requests of models one after another, calls, the end; decided again."""

from typing import Any

import pytest

from cadre.engine.commands import Send
from cadre.engine.kind import kind_of
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.kinds.program.records import ProgramSection
from cadre.protocol.code import CodeReply, CodeRequest, bodies_of, call_request, model_request
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, ErrorInfo, UserMessage
from cadre.spec.agent import Limits
from cadre.spec.program import pool_of
from cadre.testing import result
from unit.loop.build import OFFER, SimulatedRun, kinds, only, sound, spec

BLOCK = "r1:program"
PLACE: dict[str, Any] = {"tree": "r1", "run": "r1", "at": 2.0, "block": BLOCK}
FIRST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "one"}]}
SECOND: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "two"}]}


def begun(**fields: Any) -> SimulatedRun:
    return SimulatedRun(spec(kind="program", sections=[ProgramSection(main="a.py:main")], **fields)).begin()


def asked(*requests: CodeRequest, exchange: int = 0) -> CodeYielded:
    id = f"{BLOCK}:{exchange}:yielded"
    return CodeYielded(id=id, exchange=exchange, calls=list(requests), clock=[0.5], **PLACE)


def ended(exchange: int = 0, **fields: Any) -> CodeFinished:
    return CodeFinished(id=f"{BLOCK}:{exchange}:finished", exchange=exchange, **PLACE, **fields)


def reply(sim: SimulatedRun, raw: dict[str, Any]) -> list[ev.AnyEvent]:
    assert sim.run.model is not None
    return sim.arrive(ModelReplied(attempt=sim.run.model.attempt, content="said", raw=raw))


def owed(sim: SimulatedRun) -> CodeCall:
    (found,) = [one.message for one in sim.owed() if isinstance(one, Send) and isinstance(one.message, CodeCall)]
    return found


class NoChat:
    """A part of the run that requests of the kind must not read."""


def body_asked(sim: SimulatedRun) -> dict[str, Any] | None:
    chat: Any = NoChat()
    return kind_of(sim.run).request(sim.run, "program", chat).raw


def test_the_program_is_begun_with_its_task_and_what_it_may_call() -> None:
    call = owed(begun())
    assert (call.pool, call.block, call.code, call.exchanges) == (pool_of("boss"), BLOCK, "a.py:main", [])
    assert call.inputs["task"] == "Do it."
    assert [one["name"] for one in call.inputs["tools"]] == [*OFFER.tools, *OFFER.members]


def test_requests_of_models_are_made_one_after_another_and_answered_together() -> None:
    sim = begun()
    events = sim.arrive(asked(model_request("chat", FIRST, []), model_request("chat", SECOND, [])))
    assert kinds(events) == ["ProgramAsked", "ModelCalled"]
    assert body_asked(sim) == FIRST
    events = reply(sim, {"id": "a"})
    assert kinds(events) == ["ModelAnswered", "StepFinished", "StepStarted", "ModelCalled"]
    assert body_asked(sim) == SECOND
    assert sim.owed()
    reply(sim, {"id": "b"})
    call = owed(sim)
    assert [one.replies for one in call.exchanges] == [[CodeReply(value={"id": "a"}), CodeReply(value={"id": "b"})]]
    assert call.id == f"{BLOCK}:1"
    assert kinds(sim.arrive(ended(1, output="done"))) == ["ProgramEnded", "StepFinished", "RunFinished"]
    assert sim.run.result is not None
    assert (sim.run.result.state, sim.run.result.output) == ("success", "done")
    sound(sim)


def test_calls_come_before_the_model_and_what_cannot_be_called_is_an_error_of_the_program() -> None:
    sim = begun()
    requests = [
        model_request("chat", FIRST, []),
        call_request("add", {"a": 1, "b": 2}, "c1"),
        call_request("nothing", {}, "c2"),
    ]
    events = sim.arrive(asked(*requests))
    assert kinds(events) == ["ProgramAsked", "ToolCalled", "CallRefused"]
    call = only(events, ev.ToolCalled).call
    assert kinds(sim.arrive(result(call, 3, tool="add"))) == [
        "ToolAnswered",
        "StepFinished",
        "StepStarted",
        "ModelCalled",
    ]
    reply(sim, {"id": "a"})
    model, first, second = owed(sim).exchanges[0].replies
    assert (model.value, first.value, first.error) == ({"id": "a"}, 3, None)
    assert "nothing" in str(second.error)
    sound(sim)


def test_a_second_answer_to_one_question_is_not_awaited() -> None:
    sim = begun()
    sim.arrive(asked(model_request("chat", FIRST, [])))
    assert kinds(sim.arrive(asked(model_request("chat", SECOND, [])), cause="again")) == ["RecordIgnored"]
    assert kinds(sim.arrive(ended(1, output="early"), cause="early")) == ["RecordIgnored"]


def test_an_error_of_the_program_is_that_of_the_run() -> None:
    sim = begun()
    sim.arrive(ended(error=ErrorInfo("non-deterministic", "differs")))
    assert sim.run.result is not None
    assert sim.run.result.error is not None
    assert sim.run.result.error.code == "non-deterministic"


def test_the_requests_of_a_run_are_bounded() -> None:
    sim = begun(limits=Limits(calls=2))
    sim.arrive(asked(model_request("chat", FIRST, [])))
    reply(sim, {"id": "a"})
    events = sim.arrive(asked(model_request("chat", SECOND, []), exchange=1))
    assert only(events, ev.RunFinished).error.code == "budget"


def test_a_model_that_refuses_ends_the_run() -> None:
    sim = begun()
    sim.arrive(asked(model_request("chat", FIRST, [])))
    events = sim.fail("too long", final=True, too_long=True)
    assert only(events, ev.RunFinished).error.code == "no-answer", "no summary would make its request shorter"


def test_a_message_is_refused_and_buys_no_model_call_again() -> None:
    sim = begun()
    sim.arrive(asked(model_request("chat", FIRST, [])))
    message = UserMessage(id="u", tree="r1", run="r1", at=3.0, text="Stop.", mode="interrupt")
    assert only(sim.arrive(message), ev.RecordIgnored).code == "reads-no-messages"
    assert sim.run.unread == []
    sound(sim)


@pytest.mark.parametrize("key", ["messages", "input"])
def test_a_request_says_what_it_adds_to_an_earlier_one(key: str) -> None:
    api: Any = "chat" if key == "messages" else "responses"
    bodies: list[tuple[Any, dict[str, Any]]] = []
    requests = []
    said: list[dict[str, Any]] = [{"role": "user", "content": "x" * 1000}]
    for number in range(30):
        said = [*said, {"role": "assistant", "content": f"answer {number}"}]
        body = {"model": "m", key: said, "n": number % 2, **({"stop": ["x"]} if number % 3 else {})}
        requests.append(model_request(api, body, bodies))
        bodies.append((api, body))
    assert bodies_of(requests) == bodies
    assert len(repr(requests)) < 10_000
    assert bodies_of([model_request(api, {key: "a text"}, bodies)]) == [(api, {key: "a text"})]
