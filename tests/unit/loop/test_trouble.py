"""A model call without an answer: waits, patience, tries, takeover, and the word that ends the run."""

import pytest

from cadre.journal import events as ev
from cadre.journal.arrivals import ModelFailed, ModelLost, ModelReplied
from cadre.journal.run import Phase
from cadre.spec.agent import Limits
from cadre.spec.model import ModelSpec
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, only, result, spec, timer


def waits(sim: SimulatedRun, times: int, **fields: object) -> list[float]:
    found = []
    for _ in range(times):
        deferred = only(sim.fail(**fields), ev.ModelDeferred)  # type: ignore[arg-type]
        found.append(deferred.until - sim.at)
        sim.wake()
    return found


def test_waits_double_up_to_a_minute() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(retries=99))).begin()
    assert waits(sim, 9) == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_the_endpoints_own_time_wins() -> None:
    sim = SimulatedRun().begin()
    deferred = only(sim.fail(retry_after=37.5, status=429, rate_limited=True), ev.ModelDeferred)
    assert (deferred.until, deferred.status, deferred.rate_limited) == (137.5, 429, True)
    assert sim.run.phase is Phase.WAITING
    called = only(sim.wake(), ev.ModelCalled)
    assert (called.purpose, called.step, called.attempt) == ("act", 1, 2)
    assert called.cause == "r1:model-act-1-1", "the timer's record is what now keeps the run alive"


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_so_many_retries_are_made_after_the_first_failure(retries: int) -> None:
    sim = SimulatedRun(spec(model=ModelSpec(retries=retries))).begin()
    waits(sim, retries)
    finished = only(sim.fail("still broken"), ev.RunFinished)
    assert (finished.state, finished.error.type) == ("error", "AgentGenerationError")
    assert "still broken" in finished.error.message


def test_rate_limits_take_no_retry_but_end_with_the_patience() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(retries=1, patience=100.0))).begin()
    assert waits(sim, 5, retry_after=20.0, rate_limited=True) == [20.0] * 5
    assert "RunFinished" in kinds(sim.fail(retry_after=20.0, rate_limited=True))


def test_after_many_rate_limits_the_retries_are_all_left() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(retries=1))).begin()
    waits(sim, 10, retry_after=1.0, status=429, rate_limited=True)
    waits(sim, 1, status=503)
    assert "RunFinished" in kinds(sim.fail(status=503))


def test_a_wait_longer_than_the_patience_ends_the_run_at_once() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(patience=100.0))).begin()
    assert "RunFinished" in kinds(sim.fail(retry_after=101.0, rate_limited=True))


def test_a_refused_request_ends_the_run_at_once() -> None:
    finished = only(SimulatedRun().begin().fail("bad key", status=401, final=True), ev.RunFinished)
    assert (finished.state, finished.error.type) == ("error", "AgentGenerationError")
    assert finished.error.message == "bad key"


@pytest.mark.parametrize("fields", [{"final": True}, {"retry_after": 1e9, "rate_limited": True}])
def test_after_the_last_step_the_failure_becomes_the_answer(fields: dict[str, object]) -> None:
    sim = SimulatedRun(spec(limits=Limits(max_steps=1))).begin()
    sim.say(content="no call")
    finished = only(sim.fail("no luck", **fields), ev.RunFinished)
    assert finished.state == "max_steps_error"
    assert finished.error.type == "AgentMaxStepsError"
    assert "no luck" in finished.output


def test_tries_are_counted_anew_for_each_call() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(retries=1))).begin()
    waits(sim, 1)
    sim.say(content="no call")
    assert sim.run.failures == 0
    assert sim.run.failing_since is None
    assert waits(sim, 1) == [0.5]


def test_each_wait_of_a_run_has_a_timer_of_its_own() -> None:
    """A plan, its step and the final answer share a number; an id seen before would be let go unheard."""
    limits = Limits(max_steps=1)
    sim = SimulatedRun(spec(planning_interval=1, limits=limits, model=ModelSpec(retries=9))).begin()
    names = []
    for content in ("a plan", "no call", "the answer"):
        for _ in range(2):
            sim.fail()
            assert sim.run.deferral is not None
            names.append(sim.run.deferral.timer)
            sim.wake()
        sim.say(content=content)
    assert sim.run.phase is Phase.DONE
    assert len(set(names)) == len(names) == 6


def test_a_timer_that_nobody_waits_for_is_ignored() -> None:
    sim = SimulatedRun().begin()
    sim.fail()
    assert kinds(sim.arrive(timer("model-act-1-7"))) == ["RecordIgnored"]
    assert sim.run.deferral is not None
    sim.wake()
    assert kinds(sim.arrive(timer("model-act-1-1"))) == ["RecordIgnored"]
    assert sim.run.model is not None


def test_a_lost_call_is_made_again_by_whoever_has_the_record() -> None:
    sim = SimulatedRun(spec(planning_interval=1)).begin()
    called = only(sim.lose(), ev.ModelCalled)
    assert called == ev.ModelCalled(purpose="plan", step=1, attempt=2, cause="r1:task")
    sim.say(content="a plan")
    called = only(sim.lose(), ev.ModelCalled)
    assert (called.purpose, called.step, called.attempt) == ("act", 1, 2)


def test_an_answer_of_a_call_that_was_taken_over_changes_nothing() -> None:
    sim = SimulatedRun().begin()
    sim.lose()
    for late in (
        ModelReplied(attempt=1, content="", calls=[ANSWER]),
        ModelFailed(attempt=1, message="late"),
        ModelLost(attempt=1),
    ):
        assert kinds(sim.arrive(late)) == ["RecordIgnored"]
    assert sim.run.model is not None
    assert sim.run.model.attempt == 2


def test_losing_a_worker_is_no_failure_of_the_endpoint() -> None:
    sim = SimulatedRun(spec(model=ModelSpec(retries=1))).begin()
    for _ in range(5):
        sim.lose()
    assert "ModelDeferred" in kinds(sim.fail())


def test_the_record_that_closed_a_step_owns_the_next_model_call() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1))
    called = only(sim.arrive(result("r1_1_0", 2)), ev.ModelCalled)
    assert called.cause == "r1_1_0:result"
