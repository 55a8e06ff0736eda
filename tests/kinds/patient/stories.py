"""A patient run, story by story: what it notes, waits for and asks, and that its journal reports all of it."""

from __future__ import annotations

import msgspec
from patient_kind.records import Noted, Nudge, Nudged, PatientSpec, PatientState

from cadre.delivery.codec import encode, newer_schema
from cadre.engine.commands import SetTimer
from cadre.engine.timers import ended, running
from cadre.errors import NewerKind
from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.loop.decide import MAX_KEPT_SIGNALS
from cadre.protocol.messages import Decision, Signal
from cadre.spec.kinds import sections
from unit.loop.build import ANSWER, SimulatedRun, call, kinds, replay_of, result, spec, timer

LOOK = call("look", at="sky")
NOBODY = call("nobody")


def patient(**fields: object) -> SimulatedRun:
    return SimulatedRun(spec(kind="patient", **sections(PatientSpec(**fields)))).begin()  # type: ignore[arg-type]


def decided(sim: SimulatedRun, verdict: str) -> list[ev.AnyEvent]:
    call = sim.run.open_calls()[0].id
    fields = {"id": f"{call}:decision", "tree": "r1", "run": "r1", "at": 2.0, "call": call}
    return sim.arrive(msgspec.convert({"type": "decision", **fields, "verdict": verdict}, Decision))


def test_it_notes_what_it_is_asked_for_and_answers() -> None:
    sim = patient()
    assert kinds(sim.say(LOOK)) == ["ModelAnswered", "Noted", "ToolCalled"]
    assert kinds(sim.arrive(result(sim.id(), 3))) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    assert kinds(sim.say(ANSWER))[-1] == "RunFinished"
    assert replay_of(sim).divergences == []


def test_it_pauses_between_steps_as_a_timer() -> None:
    sim = patient(pause=30.0)
    sim.say(LOOK)
    assert kinds(sim.arrive(result(sim.id(), 3))) == ["ToolAnswered", "StepFinished", "WaitStarted"]
    assert sim.run.phase is Phase.ACTING
    timers = [command for command in sim.owed() if type(command).__name__ == "SetTimer"]
    assert [command.timer.name for command in timers] == ["kind-pause"]  # type: ignore[union-attr]
    assert kinds(sim.arrive(timer("kind-pause"))) == ["WaitFinished", "ModelCalled"]
    assert kinds(sim.arrive(timer("kind-pause"))) == ["RecordIgnored"]
    assert replay_of(sim).divergences == []


def signal(name: str = "go", number: int = 1, payload: object = None) -> Signal:
    return Signal(id=f"s{number}", tree="r1", run="r1", at=2.0, name=name, payload=payload, sender="ann")


def timers(sim: SimulatedRun) -> list[str]:
    return [command.timer.name for command in sim.owed() if isinstance(command, SetTimer)]


def test_a_signal_ends_a_pause_before_its_time() -> None:
    sim = patient(pause=30.0, signal="go")
    sim.say(LOOK)
    sim.arrive(result(sim.id(), 3))
    assert kinds(sim.arrive(signal("other"))) == ["SignalReceived"]
    before = sim.run
    events = sim.arrive(signal(number=2, payload={"fast": True}))
    assert kinds(events) == ["SignalReceived", "WaitFinished", "Nudged", "ModelCalled"]
    assert events[1] == ev.WaitFinished(name="pause", signal="go")
    assert events[2] == Nudged(text="pause ended by go: {'fast': True}")
    assert [kept.name for kept in before.signals] == ["other"]
    assert timers(sim) == []
    assert kinds(sim.arrive(timer("kind-pause"))) == ["RecordIgnored"]
    assert replay_of(sim).divergences == []


def test_the_timer_of_a_pause_that_a_signal_ends_is_removed() -> None:
    sim = patient(pause=30.0, signal="go")
    sim.say(LOOK)
    sim.arrive(result(sim.id(), 3))
    before = running(sim.run)
    assert timers(sim) == before == ["kind-pause"]
    sim.arrive(signal("go"))
    assert ended(before, sim.run) == "kind-pause"


def test_a_signal_that_came_before_the_wait_ends_it_at_once() -> None:
    sim = patient(signal="go")
    for number in (1, 2):
        sim.arrive(signal(number=number, payload=number))
    sim.say(LOOK)
    events = sim.arrive(result(sim.id(), 3))
    assert kinds(events) == [
        "ToolAnswered",
        "StepFinished",
        "WaitStarted",
        "WaitFinished",
        "Nudged",
        "ModelCalled",
    ]
    assert events[4] == Nudged(text="pause ended by go: 1")
    assert [kept.payload for kept in sim.run.signals] == [2]
    assert replay_of(sim).divergences == []


def test_a_signal_that_overtakes_its_task_is_kept() -> None:
    sim = SimulatedRun(spec(kind="patient", **sections(PatientSpec(signal="go"))))
    assert kinds(sim.arrive(signal())) == ["SignalReceived"]
    sim.begin().say(LOOK)
    assert kinds(sim.arrive(result(sim.id(), 3)))[-1] == "ModelCalled"
    assert replay_of(sim).divergences == []


def test_without_a_time_only_the_signal_ends_the_wait() -> None:
    sim = patient(signal="go")
    sim.say(LOOK)
    sim.arrive(result(sim.id(), 3))
    assert sim.owed() == []
    assert kinds(sim.arrive(signal()))[-1] == "ModelCalled"


def test_so_many_signals_are_kept_and_no_more() -> None:
    sim = patient()
    for number in range(MAX_KEPT_SIGNALS):
        sim.arrive(signal(number=number))
    assert kinds(sim.arrive(signal(number=1000))) == ["RecordIgnored"]
    sim.say(ANSWER)
    assert sim.run.signals == []
    assert kinds(sim.arrive(signal(number=1001))) == ["RecordIgnored"]
    assert replay_of(sim).divergences == []


def test_a_person_is_asked_first() -> None:
    sim = patient(ask=True)
    events = sim.say(LOOK)
    assert kinds(events) == ["ModelAnswered", "Noted", "ApprovalRequested"]
    assert [call.kind for call in sim.run.open_calls()] == ["question"]
    assert sim.owed() == []
    assert kinds(decided(sim, "approved")) == ["ApprovalDecided", "ToolCalled"]
    sim.arrive(result(sim.run.open_calls()[0].id, 3))
    assert sim.run.phase is Phase.THINKING
    assert replay_of(sim).divergences == []


def test_calls_that_a_person_wanted_may_still_be_refused() -> None:
    sim = patient(ask=True)
    sim.say(NOBODY)
    events = decided(sim, "approved")
    assert kinds(events) == ["ApprovalDecided", "CallRefused", "StepFinished", "ModelCalled"]


def test_a_person_says_no() -> None:
    sim = patient(ask=True)
    sim.say(LOOK)
    assert kinds(decided(sim, "rejected")) == ["ApprovalDecided", "StepFinished", "ModelCalled"]
    assert replay_of(sim).divergences == []


def test_its_steps_are_used_up() -> None:
    sim = SimulatedRun(spec(kind="patient")).begin(max_steps=1)
    sim.say(LOOK)
    end = sim.arrive(result(sim.id(), 3))[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, "look: 3" in end.output) == ("max_steps_error", True)


def test_records_of_its_own() -> None:
    sim = patient()
    sim.say(LOOK)
    sim.arrive(Nudge(id="n1", tree="r1", run="r1", at=2.0, text="hurry"))
    events = sim.arrive(Nudge(id="n2", tree="r1", run="r1", at=2.0, text="now"))
    assert isinstance(events[0], Nudged)
    assert isinstance(sim.run.own, PatientState)
    assert sim.run.own.nudges == 2
    assert replay_of(sim).divergences == []
    first = sim.journal()[-1]
    assert (first.kind, first.kind_version) == ("patient", 1)


def test_what_a_newer_version_of_it_wrote_is_left_to_a_newer_replica() -> None:
    entry = msgspec.structs.replace(patient().journal()[0], kind_version=2)
    assert isinstance(newer_schema(encode(entry)), NewerKind)
    nudge = Nudge(id="n1", tree="r1", run="r1", at=2.0, kind="unheard-of")
    assert isinstance(newer_schema(encode(nudge)), NewerKind)
    assert Noted.__struct_config__.tag == "patient.noted"
