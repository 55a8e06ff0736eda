"""Other models for a call that the first one gives no answer to: in their order, each with its own tries."""

from typing import Any

import pytest

from cadre.engine.model_choice import FIRST_AGAIN_SECONDS
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from unit.loop.build import ANSWER, Course, call, kinds, only, result, sound, spec

SECOND = ModelSpec(name="second", retries=1)
THIRD = ModelSpec(name="third", retries=0, calls="text")


def falling_back(**fields: Any) -> AgentSpec:
    return spec(model=ModelSpec(name="first", retries=2, fallbacks=[SECOND, THIRD]), **fields)


def asked(events: list[ev.AnyEvent]) -> tuple[int, int, str]:
    called = only(events, ev.ModelCalled)
    return called.attempt, called.fallback, called.model


def step(course: Course) -> list[ev.AnyEvent]:
    course.say(call("add", a=course.run.step, b=2))
    return course.arrive(result(course.id(), course.run.step))


def test_a_refused_request_goes_to_the_next_model_at_once() -> None:
    course = Course(falling_back()).begin()
    events = course.fail("bad key", status=401, final=True)
    assert asked(events) == (2, 1, "second")
    assert only(events, ev.ModelCalled).reason == "bad key"
    assert asked(course.fail("no such model", final=True)) == (3, 2, "third")
    finished = only(course.fail("gone as well", final=True), ev.RunFinished)
    assert (finished.state, finished.error.message) == ("error", "gone as well")
    sound(course)


def test_each_model_has_its_own_tries_and_waits() -> None:
    course = Course(falling_back()).begin()
    waits: list[tuple[int, float]] = []
    while course.run.phase is not Phase.DONE:
        course.fail()
        if course.run.deferral is not None:
            fallback = course.run.choice.fallback if course.run.choice is not None else 0
            waits.append((fallback, course.run.deferral.until - course.at))
            course.wake()
    assert waits == [(0, 0.5), (0, 1.0), (1, 0.5)]
    sound(course)


def test_rate_limits_of_the_next_model_have_its_own_patience() -> None:
    models = ModelSpec(patience=10.0, fallbacks=[ModelSpec(name="second", patience=100.0)])
    course = Course(spec(model=models)).begin()
    assert asked(course.fail(retry_after=11.0, rate_limited=True)) == (2, 1, "second")
    assert "ModelDeferred" in kinds(course.fail(retry_after=99.0, rate_limited=True))


def test_a_run_stays_with_the_model_that_answers_and_comes_back_later() -> None:
    course = Course(falling_back()).begin()
    course.fail("down", final=True)
    assert asked(step(course)) == (1, 1, "second")
    course.at += FIRST_AGAIN_SECONDS
    assert asked(step(course)) == (1, 0, "")
    assert course.run.choice is not None
    assert asked(course.fail("still down", final=True)) == (2, 1, "second")
    sound(course)


def test_the_order_goes_round_to_the_model_that_was_asked_first() -> None:
    course = Course(falling_back()).begin()
    course.fail("down", final=True)
    step(course)
    assert asked(course.fail("out", final=True)) == (2, 2, "third")
    assert asked(course.fail("out", final=True)) == (3, 0, "first")
    assert kinds(course.fail("out", final=True)) == ["RunFinished"]
    sound(course)


def test_the_worker_dies_while_a_fallback_is_asked() -> None:
    course = Course(falling_back()).begin()
    course.fail("down", final=True)
    assert asked(course.lose()) == (3, 1, "second")
    course.fail()
    assert asked(course.wake()) == (4, 1, "second")
    course.say(ANSWER)
    assert course.run.phase is Phase.DONE
    sound(course)


def test_the_last_word_may_come_from_a_fallback() -> None:
    course = Course(falling_back(limits=Limits(max_steps=1))).begin()
    course.say(content="no call")
    assert asked(course.fail("down", final=True)) == (2, 1, "second")
    assert only(course.say(content="An answer."), ev.RunFinished).output == "An answer."


def test_a_request_that_is_too_long_is_made_shorter_instead() -> None:
    course = Course(falling_back()).begin()
    events = course.fail("too long", final=True, too_long=True)
    assert kinds(events) == ["ContextOverflowed", "ModelCalled"]
    assert asked(events) == (2, 0, "")


def test_the_next_step_asks_the_model_that_has_answered() -> None:
    course = Course(falling_back()).begin()
    course.fail("down", final=True)
    course.say(call("add", a=1, b=2))
    events = course.arrive(result(course.id(), 3))
    assert asked(events) == (1, 1, "second")
    sound(course)


@pytest.mark.parametrize(
    ("fallback", "said"),
    [
        (ModelSpec(), r"model.fallbacks\[0\]: name another model, or the url"),
        (ModelSpec(name="a", fallbacks=[SECOND]), r"model.fallbacks\[0\]: a fallback has none of its own"),
        (ModelSpec(name="a", context=1), r"model.fallbacks\[0\].context\b.* 1000"),
    ],
)
def test_what_is_no_fallback(fallback: ModelSpec, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(model=ModelSpec(fallbacks=[fallback]))
