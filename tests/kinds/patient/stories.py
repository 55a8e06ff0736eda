"""A patient run, story by story: what it notes, waits for and asks, and that its journal tells all of it."""

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
from cadre.spec.sections import sections
from unit.loop.build import ANSWER, Course, call, kinds, replay_of, result, spec, timer

LOOK = call("look", at="sky")
NOBODY = call("nobody")


def patient(**fields: object) -> Course:
    return Course(spec(kind="patient", **sections(PatientSpec(**fields)))).begin()  # type: ignore[arg-type]


def decided(course: Course, verdict: str) -> list[ev.AnyEvent]:
    call = course.run.open_calls()[0].id
    fields = {"id": f"{call}:decision", "tree": "r1", "run": "r1", "at": 2.0, "call": call}
    return course.arrive(msgspec.convert({"type": "decision", **fields, "verdict": verdict}, Decision))


def test_it_notes_what_it_is_asked_for_and_answers() -> None:
    course = patient()
    assert kinds(course.say(LOOK)) == ["ModelAnswered", "Noted", "ToolCalled"]
    assert kinds(course.arrive(result(course.id(), 3))) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    assert kinds(course.say(ANSWER))[-1] == "RunFinished"
    assert replay_of(course).divergences == []


def test_it_pauses_between_steps_as_a_timer() -> None:
    course = patient(pause=30.0)
    course.say(LOOK)
    assert kinds(course.arrive(result(course.id(), 3))) == ["ToolAnswered", "StepFinished", "WaitStarted"]
    assert course.run.phase is Phase.ACTING
    timers = [debt for debt in course.owed() if type(debt).__name__ == "SetTimer"]
    assert [debt.timer.name for debt in timers] == ["kind-pause"]  # type: ignore[union-attr]
    assert kinds(course.arrive(timer("kind-pause"))) == ["WaitFinished", "ModelCalled"]
    assert kinds(course.arrive(timer("kind-pause"))) == ["RecordIgnored"]
    assert replay_of(course).divergences == []


def signal(name: str = "go", number: int = 1, payload: object = None) -> Signal:
    return Signal(id=f"s{number}", tree="r1", run="r1", at=2.0, name=name, payload=payload, sender="ann")


def timers(course: Course) -> list[str]:
    return [debt.timer.name for debt in course.owed() if isinstance(debt, SetTimer)]


def test_a_signal_ends_a_pause_before_its_time() -> None:
    course = patient(pause=30.0, signal="go")
    course.say(LOOK)
    course.arrive(result(course.id(), 3))
    assert kinds(course.arrive(signal("other"))) == ["SignalReceived"]
    before = course.run
    events = course.arrive(signal(number=2, payload={"fast": True}))
    assert kinds(events) == ["SignalReceived", "WaitFinished", "Nudged", "ModelCalled"]
    assert events[1] == ev.WaitFinished(name="pause", signal="go")
    assert events[2] == Nudged(text="pause ended by go: {'fast': True}")
    assert [kept.name for kept in before.signals] == ["other"]
    assert timers(course) == []
    assert kinds(course.arrive(timer("kind-pause"))) == ["RecordIgnored"]
    assert replay_of(course).divergences == []


def test_the_timer_of_a_pause_that_a_signal_ends_is_removed() -> None:
    course = patient(pause=30.0, signal="go")
    course.say(LOOK)
    course.arrive(result(course.id(), 3))
    before = running(course.run)
    assert timers(course) == before == ["kind-pause"]
    course.arrive(signal("go"))
    assert ended(before, course.run) == "kind-pause"


def test_a_signal_that_came_before_the_wait_ends_it_at_once() -> None:
    course = patient(signal="go")
    for number in (1, 2):
        course.arrive(signal(number=number, payload=number))
    course.say(LOOK)
    events = course.arrive(result(course.id(), 3))
    assert kinds(events) == [
        "ToolAnswered",
        "StepFinished",
        "WaitStarted",
        "WaitFinished",
        "Nudged",
        "ModelCalled",
    ]
    assert events[4] == Nudged(text="pause ended by go: 1")
    assert [kept.payload for kept in course.run.signals] == [2]
    assert replay_of(course).divergences == []


def test_a_signal_that_overtakes_its_task_is_kept() -> None:
    course = Course(spec(kind="patient", **sections(PatientSpec(signal="go"))))
    assert kinds(course.arrive(signal())) == ["SignalReceived"]
    course.begin().say(LOOK)
    assert kinds(course.arrive(result(course.id(), 3)))[-1] == "ModelCalled"
    assert replay_of(course).divergences == []


def test_without_a_time_only_the_signal_ends_the_wait() -> None:
    course = patient(signal="go")
    course.say(LOOK)
    course.arrive(result(course.id(), 3))
    assert course.owed() == []
    assert kinds(course.arrive(signal()))[-1] == "ModelCalled"


def test_so_many_signals_are_kept_and_no_more() -> None:
    course = patient()
    for number in range(MAX_KEPT_SIGNALS):
        course.arrive(signal(number=number))
    assert kinds(course.arrive(signal(number=1000))) == ["RecordIgnored"]
    course.say(ANSWER)
    assert course.run.signals == []
    assert kinds(course.arrive(signal(number=1001))) == ["RecordIgnored"]
    assert replay_of(course).divergences == []


def test_a_person_is_asked_first() -> None:
    course = patient(ask=True)
    events = course.say(LOOK)
    assert kinds(events) == ["ModelAnswered", "Noted", "ApprovalRequested"]
    assert [call.kind for call in course.run.open_calls()] == ["question"]
    assert course.owed() == []
    assert kinds(decided(course, "approved")) == ["ApprovalDecided", "ToolCalled"]
    course.arrive(result(course.run.open_calls()[0].id, 3))
    assert course.run.phase is Phase.THINKING
    assert replay_of(course).divergences == []


def test_calls_that_a_person_wanted_may_still_be_refused() -> None:
    course = patient(ask=True)
    course.say(NOBODY)
    events = decided(course, "approved")
    assert kinds(events) == ["ApprovalDecided", "CallRefused", "StepFinished", "ModelCalled"]


def test_a_person_says_no() -> None:
    course = patient(ask=True)
    course.say(LOOK)
    assert kinds(decided(course, "rejected")) == ["ApprovalDecided", "StepFinished", "ModelCalled"]
    assert replay_of(course).divergences == []


def test_its_steps_are_used_up() -> None:
    course = Course(spec(kind="patient")).begin(max_steps=1)
    course.say(LOOK)
    end = course.arrive(result(course.id(), 3))[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, "look: 3" in end.output) == ("max_steps_error", True)


def test_records_of_its_own() -> None:
    course = patient()
    course.say(LOOK)
    course.arrive(Nudge(id="n1", tree="r1", run="r1", at=2.0, text="hurry"))
    events = course.arrive(Nudge(id="n2", tree="r1", run="r1", at=2.0, text="now"))
    assert isinstance(events[0], Nudged)
    assert isinstance(course.run.own, PatientState)
    assert course.run.own.nudges == 2
    assert replay_of(course).divergences == []
    first = course.journal()[-1]
    assert (first.kind, first.kind_version) == ("patient", 1)


def test_what_a_newer_version_of_it_wrote_is_left_to_a_newer_replica() -> None:
    entry = msgspec.structs.replace(patient().journal()[0], kind_version=2)
    assert isinstance(newer_schema(encode(entry)), NewerKind)
    nudge = Nudge(id="n1", tree="r1", run="r1", at=2.0, kind="unheard-of")
    assert isinstance(newer_schema(encode(nudge)), NewerKind)
    assert Noted.__struct_config__.tag == "patient.noted"
