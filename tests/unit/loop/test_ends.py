"""Records that come too late or twice, and ends from outside: cancel and poison, in every phase."""

from collections.abc import Callable

import msgspec
import pytest

from cadre.journal import events as ev
from cadre.journal.arrivals import Poisoned
from cadre.journal.run import Phase, Run
from cadre.loop.arrival_of import arrival_of
from cadre.protocol.messages import ErrorInfo, Record
from unit.loop.build import ANSWER, SimulatedRun, call, cancel, kinds, only, report, result, task, timer


def thinking() -> SimulatedRun:
    return SimulatedRun().begin()


def waiting() -> SimulatedRun:
    sim = SimulatedRun().begin()
    sim.fail(retry_after=9.0)
    return sim


def acting() -> SimulatedRun:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1), call("kid", task="x"))
    return sim


def done() -> SimulatedRun:
    sim = SimulatedRun().begin()
    sim.say(ANSWER)
    return sim


UNDER_WAY = [thinking, waiting, acting]
PHASES = [SimulatedRun, *UNDER_WAY, done]


@pytest.mark.parametrize("make", PHASES)
@pytest.mark.parametrize("late", [result("r1_9_0", 1), report("r1_9_1", "x"), timer("model-act-9-1")])
def test_records_that_nobody_awaits_are_accounted_for_and_change_nothing(
    make: Callable[[], SimulatedRun], late: Record
) -> None:
    sim = make()
    before = (sim.run.phase, sim.run.steps, sim.run.current, sim.run.usage, sim.owed())
    (ignored,) = sim.arrive(late)
    assert isinstance(ignored, ev.RecordIgnored)
    assert ignored.kind == type(late).__name__
    after = (sim.run.phase, sim.run.steps, sim.run.current, sim.run.usage, sim.owed())
    assert after == before
    assert late.id in sim.run.seen


def test_the_first_result_of_a_call_wins() -> None:
    sim = acting()
    sim.arrive(result("r1_1_0", "first"))
    assert kinds(sim.arrive(result("r1_1_0", "second"), cause="again")) == ["RecordIgnored"]
    assert sim.run.current is not None
    assert sim.run.current.calls[0].observation == "first"


def test_a_late_result_of_an_earlier_step_does_not_close_a_call_of_this_one() -> None:
    sim = acting()
    sim.arrive(result("r1_1_0", 2))
    sim.arrive(report("r1_1_1", "x"))
    sim.say(call("add", a=2, b=2))
    assert kinds(sim.arrive(result("r1_1_0", "late"), cause="again")) == ["RecordIgnored"]
    assert [open.id for open in sim.run.open_calls()] == ["r1_2_0"]


@pytest.mark.parametrize("make", UNDER_WAY)
def test_a_second_task_is_ignored(make: Callable[[], SimulatedRun]) -> None:
    assert kinds(make().arrive(task("Other."), cause="again")) == ["RecordIgnored"]


@pytest.mark.parametrize("make", UNDER_WAY)
def test_cancel_ends_a_run_in_whatever_phase(make: Callable[[], SimulatedRun]) -> None:
    sim = make()
    events = sim.arrive(cancel(reason="too slow"))
    assert kinds(events) == ["CancelRequested", "RunFinished"]
    finished = only(events, ev.RunFinished)
    assert (finished.state, finished.error) == ("cancelled", ErrorInfo("cancelled", "too slow"))
    assert sim.run.phase is Phase.DONE
    assert sim.run.model is None
    assert sim.run.deferral is None
    assert kinds(sim.arrive(cancel("c2"))) == ["RecordIgnored"]


def test_a_cancel_that_overtakes_its_task_ends_the_run_before_any_model_is_asked() -> None:
    sim = SimulatedRun()
    assert kinds(sim.arrive(cancel(reason="never mind"))) == ["CancelRequested"]
    assert sim.run.phase is Phase.NEW
    assert sim.owed() == []
    events = sim.arrive(task())
    assert kinds(events) == ["RunAccepted", "RunFinished"]
    assert only(events, ev.RunFinished).error.message == "never mind"


def test_a_cancel_without_a_reason_still_says_something() -> None:
    sim = SimulatedRun()
    sim.arrive(cancel(reason=""))
    assert only(sim.arrive(task()), ev.RunFinished).error.message
    assert only(thinking().arrive(cancel(reason="")), ev.RunFinished).error.message


@pytest.mark.parametrize("make", UNDER_WAY)
def test_a_record_that_kills_its_workers_ends_the_run(make: Callable[[], SimulatedRun]) -> None:
    sim = make()
    finished = only(sim.arrive(Poisoned(id="bad", deliveries=6)), ev.RunFinished)
    assert (finished.state, finished.error.code) == ("error", "poisoned")
    assert "bad" in finished.error.message
    assert "6" in finished.error.message


def test_an_entry_tells_the_deliveries_of_a_poisoned_record_as_a_number() -> None:
    """Replay reads no text: the message of the error may say anything."""
    sim = thinking()
    before = msgspec.convert(msgspec.to_builtins(sim.run), Run)
    sim.arrive(Poisoned(id="bad", deliveries=6, why="it breaks"))
    entry = sim.journal()[-1]
    assert entry.arrived is not None
    assert entry.arrived.fields["deliveries"] == 6
    (end,) = entry.events
    assert isinstance(end, ev.RunFinished)
    assert end.error is not None
    reworded = msgspec.structs.replace(end, error=end.error.saying("No service could handle it."))
    told = arrival_of(before, msgspec.structs.replace(entry, events=[reworded])).what
    assert told == Poisoned(id="bad", deliveries=6, why="it breaks")


def test_a_poisoned_task_is_accepted_so_that_somebody_can_be_told() -> None:
    sim = SimulatedRun(run="r1_1_0")
    what = Poisoned(id="r1_1_0:task", deliveries=6, task=task(run="r1_1_0", parent="r1"))
    assert kinds(sim.arrive(what)) == ["RunAccepted", "RunFinished"]
    assert sim.run.parent == "r1"
    assert len(sim.owed()) == 1


def test_a_poisoned_record_of_a_run_that_never_began_is_only_accounted_for() -> None:
    sim = SimulatedRun()
    assert kinds(sim.arrive(Poisoned(id="bad", deliveries=6))) == ["RecordIgnored"]
    assert "bad" in sim.run.seen
