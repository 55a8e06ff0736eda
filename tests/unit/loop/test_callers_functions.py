"""Functions of anyone who started a run: offered next to the agent's tools, held when called, answered from outside."""

from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import CallerTerms, Decision, ToolCall, Verdict
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, only, sent, sound, spec, task

WEATHER = ToolCard(
    name="weather",
    description="Tells the weather.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CITY = {"city": "Oslo"}


def decision(verdict: Verdict, call: str = "r1_1_0", id: str = "d1", **fields: Any) -> Decision:
    return Decision(id=id, tree="r1", run="r1", at=3.0, call=call, verdict=verdict, sender="ann", **fields)


def asking(**terms: Any) -> SimulatedRun:
    """A run whose model has called a function of the caller."""
    sim = SimulatedRun(spec())
    sim.arrive(msgspec.structs.replace(task(), terms=CallerTerms(tools=[WEATHER], **terms)))
    sim.say(call("weather", **CITY))
    return sim


def test_it_is_offered_beside_the_tools() -> None:
    assert list(asking().run.tools) == ["add", "look", "weather"]


def test_a_call_waits_and_is_sent_to_nobody() -> None:
    sim = asking()
    (held,) = sim.run.open_calls()
    assert (held.name, held.arguments) == ("weather", CITY)
    assert held.hold is not None
    assert sent(sim, ToolCall) == []
    assert sim.run.phase is Phase.ACTING


def test_the_feedback_is_the_result() -> None:
    sim = asking()
    events = sim.arrive(decision("approved", feedback="3 degrees"))
    assert kinds(events)[:2] == ["ApprovalDecided", "ToolAnswered"]
    assert only(events, ev.ToolAnswered) == ev.ToolAnswered(
        call="r1_1_0", tool="weather", output="3 degrees", executor="ann"
    )
    assert sim.run.phase is Phase.THINKING
    step = sim.run.steps[-1]
    assert [one.observation for one in getattr(step, "calls", [])] == ["3 degrees"]
    assert list(sim.run.tools) == ["add", "look", "weather"], "it is offered in every step"
    sim.say(ANSWER)
    sound(sim)


def test_a_word_against_it_is_read_by_the_model() -> None:
    sim = asking()
    sim.arrive(decision("rejected", feedback="no such service"))
    (call,) = getattr(sim.run.steps[-1], "calls", [])
    assert call.error is not None
    assert "no such service" in call.error.message


def test_it_cannot_be_called_otherwise() -> None:
    sim = asking()
    for fields in ({"arguments": {"city": "Rome"}}, {"tool": "add", "arguments": {"a": 1, "b": 2}}):
        (ignored,) = sim.arrive(decision("corrected", id=str(fields), **fields))
        assert isinstance(ignored, ev.RecordIgnored)
    assert len(sim.run.open_calls()) == 1


def test_arguments_that_do_not_fit_are_not_asked_for() -> None:
    sim = SimulatedRun(spec())
    sim.arrive(msgspec.structs.replace(task(), terms=CallerTerms(tools=[WEATHER])))
    assert "CallRefused" in kinds(sim.say(call("weather", town="Oslo")))


def test_the_answer_has_the_form_that_the_caller_wants() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    sim = asking(output_schema=schema)
    sim.arrive(decision("approved", feedback="3"))
    sim.say(ANSWER)
    assert sim.run.result is None, "a text is none"
    sim.say(call("final_answer", answer={"n": 3}))
    assert sim.run.result is not None
    assert sim.run.result.output == {"n": 3}
    sound(sim)
