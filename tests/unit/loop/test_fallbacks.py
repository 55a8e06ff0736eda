"""Other models for a call that the first one gives no answer to: in their order, each with its own tries."""

from typing import Any

import pytest

from cadre.engine.model_request import FIRST_AGAIN_SECONDS
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, only, result, sound, spec

SECOND = ModelSpec(name="second", retries=1)
THIRD = ModelSpec(name="third", retries=0, calls="text")


def falling_back(**fields: Any) -> AgentSpec:
    return spec(model=ModelSpec(name="first", retries=2, fallbacks=[SECOND, THIRD]), **fields)


def asked(events: list[ev.AnyEvent]) -> tuple[int, int, str]:
    called = only(events, ev.ModelCalled)
    return called.attempt, called.fallback, called.model


def step(sim: SimulatedRun) -> list[ev.AnyEvent]:
    sim.say(call("add", a=sim.run.step, b=2))
    return sim.arrive(result(sim.id(), sim.run.step))


def test_a_refused_request_goes_to_the_next_model_at_once() -> None:
    sim = SimulatedRun(falling_back()).begin()
    events = sim.fail("bad key", status=401, final=True)
    assert asked(events) == (2, 1, "second")
    assert only(events, ev.ModelCalled).reason == "bad key"
    assert asked(sim.fail("no such model", final=True)) == (3, 2, "third")
    finished = only(sim.fail("gone as well", final=True), ev.RunFinished)
    assert (finished.state, finished.error.message) == ("error", "gone as well")
    sound(sim)


def test_each_model_has_its_own_tries_and_waits() -> None:
    sim = SimulatedRun(falling_back()).begin()
    waits: list[tuple[int, float]] = []
    while sim.run.phase is not Phase.DONE:
        sim.fail()
        if sim.run.deferral is not None:
            fallback = sim.run.choice.fallback if sim.run.choice is not None else 0
            waits.append((fallback, sim.run.deferral.until - sim.at))
            sim.wake()
    assert waits == [(0, 0.5), (0, 1.0), (1, 0.5)]
    sound(sim)


def test_rate_limits_of_the_next_model_have_its_own_patience() -> None:
    models = ModelSpec(patience=10.0, fallbacks=[ModelSpec(name="second", patience=100.0)])
    sim = SimulatedRun(spec(model=models)).begin()
    assert asked(sim.fail(retry_after=11.0, rate_limited=True)) == (2, 1, "second")
    assert "ModelDeferred" in kinds(sim.fail(retry_after=99.0, rate_limited=True))


def test_a_run_stays_with_the_model_that_answers_and_comes_back_later() -> None:
    sim = SimulatedRun(falling_back()).begin()
    sim.fail("down", final=True)
    assert asked(step(sim)) == (1, 1, "second")
    sim.at += FIRST_AGAIN_SECONDS
    assert asked(step(sim)) == (1, 0, "")
    assert sim.run.choice is not None
    assert asked(sim.fail("still down", final=True)) == (2, 1, "second")
    sound(sim)


def test_the_order_goes_round_to_the_model_that_was_asked_first() -> None:
    sim = SimulatedRun(falling_back()).begin()
    sim.fail("down", final=True)
    step(sim)
    assert asked(sim.fail("out", final=True)) == (2, 2, "third")
    assert asked(sim.fail("out", final=True)) == (3, 0, "first")
    assert kinds(sim.fail("out", final=True)) == ["RunFinished"]
    sound(sim)


def test_the_worker_dies_while_a_fallback_is_asked() -> None:
    sim = SimulatedRun(falling_back()).begin()
    sim.fail("down", final=True)
    assert asked(sim.lose()) == (3, 1, "second")
    sim.fail()
    assert asked(sim.wake()) == (4, 1, "second")
    sim.say(ANSWER)
    assert sim.run.phase is Phase.DONE
    sound(sim)


def test_the_last_word_may_come_from_a_fallback() -> None:
    sim = SimulatedRun(falling_back(limits=Limits(max_steps=1))).begin()
    sim.say(content="no call")
    assert asked(sim.fail("down", final=True)) == (2, 1, "second")
    assert only(sim.say(content="An answer."), ev.RunFinished).output == "An answer."


def test_a_request_that_is_too_long_is_made_shorter_instead() -> None:
    sim = SimulatedRun(falling_back()).begin()
    events = sim.fail("too long", final=True, too_long=True)
    assert kinds(events) == ["ContextOverflowed", "ModelCalled"]
    assert asked(events) == (2, 0, "")


def test_the_next_step_asks_the_model_that_has_answered() -> None:
    sim = SimulatedRun(falling_back()).begin()
    sim.fail("down", final=True)
    sim.say(call("add", a=1, b=2))
    events = sim.arrive(result(sim.id(), 3))
    assert asked(events) == (1, 1, "second")
    sound(sim)


@pytest.mark.parametrize(
    ("fallback", "said"),
    [
        (ModelSpec(), r"model\.fallbacks\[0\]: .*\burl\b"),
        (
            ModelSpec(name="a", fallbacks=[SECOND]),
            r"model\.fallbacks\[0\]\.fallbacks: ",
        ),
        (ModelSpec(name="a", context=1), r"model.fallbacks\[0\].context\b.* 1000"),
    ],
)
def test_what_is_no_fallback(fallback: ModelSpec, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(model=ModelSpec(fallbacks=[fallback]))
