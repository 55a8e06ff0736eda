"""Replay journals: kept ones and current ones agree, and changes are found."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre.delivery.codec import decode
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.unions import close
from cadre.loop import decide as decide_module
from cadre.loop import redecide as redecide_module
from cadre.loop.owed import owed
from cadre.loop.redecide import Journaled, Replay, differences, redecide
from cadre.protocol.messages import Decision, ErrorInfo
from cadre.spec.model import ModelSpec
from harness.texts import holds
from journals import kept
from unit.loop.build import (
    ANSWER,
    SimulatedRun,
    call,
    cancel,
    chained,
    replay_of,
    report,
    result,
    sound,
    spec,
    task,
    timer,
)
from unit.loop.test_loop_properties import Chance

KEPT = [(version, name) for version in kept.VERSIONS for name in kept.names(version)]


@pytest.mark.parametrize(("version", "name"), KEPT)
def test_kept_runs_are_decided_as_they_were(version: str, name: str) -> None:
    """An upgrade of Cadre goes on with the runs in flight as they began."""
    replay = redecide(kept.journals(version, name))
    assert (replay.divergences, replay.undecided) == ([], [])
    assert replay.decided == replay.entries > 0


def test_the_kept_runs_are_of_all_kinds() -> None:
    found: set[str] = set()
    for version, name in KEPT:
        for journal in kept.journals(version, name):
            for _, entry in journal:
                found |= {str(event.__struct_config__.tag) for event in entry.events}
    known = {str(event.__struct_config__.tag) for event in close().events}
    lacking = {tag for tag in known - found if not tag.startswith(("plan.", "remote.", "program."))}
    rare = {"context.overflowed", "edit.applied", "queue.edited", "iteration.form_refused", "tool.paused"}
    assert lacking == rare


# --- runs of this version


def busy_run() -> SimulatedRun:
    """Refused, answered, failing and ignored calls, a member, a rate limit, a lost call, the end."""
    sim = SimulatedRun().begin(inputs={"two": 2})
    sim.fail("busy", status=429, rate_limited=True, retry_after=7.25)
    sim.wake()
    sim.lose()
    sim.say(call("add", a=1, b="two"), call("add", a="x"), call("kid", task="help"), call("nobody"))
    sim.arrive(result(sim.id(0), 3, started_at=1.5))
    sim.arrive(result("r1_7_7", "late"))
    sim.arrive(report(sim.id(2), "helped"))
    sim.say(content="I am thinking.")
    sim.say(call("look", at="it"))
    sim.arrive(result(sim.id(0), error=ErrorInfo("tool-failed", "broken")))
    sim.say(ANSWER)
    sim.arrive(cancel())
    return sim


def test_a_run_of_this_version_is_decided_as_it_was() -> None:
    sound(busy_run())
    replay = replay_of(busy_run())
    assert replay.decided == 13


@pytest.mark.parametrize(
    "arrive",
    [
        lambda sim: sim.fail("no such key", status=401, final=True),
        lambda sim: [sim.fail("down") for _ in range(ModelSpec().retries + 1) if sim.run.model or sim.wake()],
        lambda sim: sim.fail("slow down", rate_limited=True, retry_after=1e9),
        lambda sim: sim.arrive(cancel()),
    ],
    ids=["refused", "no tries left", "no patience left", "cancelled"],
)
def test_each_end_by_failure_is_decided_anew(arrive: Any) -> None:
    sim = SimulatedRun().begin()
    arrive(sim)
    assert sim.run.result is not None
    sound(sim)


@settings(max_examples=100)
@given(st.data())
def test_whatever_happens_to_a_run_is_decided_anew(data: st.DataObject) -> None:
    chance = Chance(data)
    for _ in range(data.draw(st.integers(1, 30))):
        chance.step()
    sound(chance.sim)


def test_a_cancel_that_overtook_its_task() -> None:
    sim = SimulatedRun()
    sim.arrive(cancel())
    sim.arrive(task())
    sound(sim)


def test_waits_for_the_clock_and_for_persons() -> None:
    """Timers of calls and runs, approvals given, corrected, rejected and expired."""
    sim = SimulatedRun(
        spec=spec(approvals={"add": "always"}, approval_seconds=60.0, timeouts={"look": 5.0}, planning_interval=2)
    ).begin(deadline=1e6)
    sim.say(content="a plan")
    sim.say(call("add", a=1, b=2), call("add", a=1, b=3), call("add", a=1, b=4), call("look", at="x"))
    decide(sim, 0, "approved")
    decide(sim, 1, "corrected", arguments={"a": 5, "b": 5}, feedback="larger")
    decide(sim, 2, "rejected", feedback="no")
    sim.at += 6
    sim.arrive(timer(f"call-{sim.id(3)}"))
    sim.arrive(result(sim.id(0), 3))
    sim.arrive(result(sim.id(1), 10))
    sim.say(call("add", a=2, b=2))
    sim.at += 61
    sim.arrive(timer(f"approval-{sim.id(0)}"))
    sim.say(content="another plan")
    sim.at = 1e6
    sim.arrive(timer("deadline"))
    kinds = {type(event).__name__ for entry in sim.journal() for event in entry.events}
    assert {"ApprovalRequested", "ApprovalDecided", "CallTimedOut", "RunFinished"} <= kinds
    sound(sim)


def decide(sim: SimulatedRun, index: int, verdict: Any, **fields: Any) -> None:
    call = sim.id(index)
    about = {"tree": sim.run.tree, "run": sim.run.id, "at": sim.at, "call": call, **fields}
    sim.arrive(Decision(id=f"{call}:decision", verdict=verdict, sender="me", **about))


# --- what is found


def doctored(entries: list[Entry], n: int, change: Any) -> Replay:
    journal = chained([Journaled(entry.n, entry) for entry in entries])
    fields = msgspec.to_builtins(journal[n - 1].entry)
    change(fields)
    journal[n - 1] = Journaled(journal[n - 1].seq, decode(msgspec.json.encode(fields), Entry))
    return redecide([journal])


def found(replay: Replay) -> list[tuple[int, str]]:
    return [(one.n, one.about) for one in replay.divergences]


def test_another_decision_is_shown_as_a_difference() -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["events"][1]["arguments"]["b"] = "three"

    replay = doctored(busy_run().journal(), 5, change)
    assert found(replay) == [(5, "decision")]
    assert replay.divergences[0].lines == ['2. tool.called.arguments.b: journaled "three", now "two"']


def test_events_left_out_are_named() -> None:
    def change(entry: dict[str, Any]) -> None:
        del entry["events"][-1]

    replay = doctored(SimulatedRun().begin().journal(), 1, change)
    assert replay.divergences[0].lines == [
        "journaled run.accepted, toolset.changed",
        "now       run.accepted, toolset.changed, model.called",
    ]


@pytest.mark.parametrize(
    ("n", "field", "value", "about"),
    [(3, "n", 4, "number"), (3, "prev", "AQ", "back-pointers"), (8, "prev", "AQ", "back-pointers")],
)
def test_entries_out_of_place(n: int, field: str, value: Any, about: str) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry[field] = value

    replay = doctored(busy_run().journal(), n, change)
    assert (n, about) in {(one.n - (field == "n"), one.about) for one in replay.divergences}


def test_an_entry_that_does_not_tell_what_arrived() -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["events"] = [{"type": "step.finished", "step": 1}]
        entry["arrived"] = {"type": "Nobody"}

    replay = doctored(SimulatedRun().begin().journal(), 1, change)
    assert [(one.n, "step.finished" in one.reason) for one in replay.undecided] == [(1, True)]


def test_a_rule_that_judges_otherwise_is_found_in_old_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that forgets to end a step after its last call would leave runs hanging."""
    monkeypatch.setattr(decide_module, "settled", lambda draft, call: None)
    replay = redecide(kept.journals("1.0", "parallel_tools"))
    assert [one.about for one in replay.divergences] == ["decision"]
    assert replay.divergences[0].lines[0] == "journaled tool.answered, step.finished, model.called"


def test_a_rule_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AttributeError("nothing there")

    monkeypatch.setattr(decide_module, "settled", fail)
    replay = redecide(kept.journals("1.0", "parallel_tools"))
    assert replay.divergences[0].lines == ["deciding fails now: AttributeError: nothing there"]


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1, 1.0, True),
        (1.0, 1.1, False),
        (1, "1", False),
        ("1", 1.0, False),
        (1.0, None, False),
        (10**12, 10**12 + 1, False),
    ],
)
def test_fractions_that_are_nearly_equal_are(was: Any, now: Any, same: bool) -> None:
    assert (differences(was, now) == []) is same


def test_a_debt_that_a_redelivery_would_forget_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redecide_module, "owed", lambda run, since=0: owed(run, since) if since else [])
    [replay] = {one.about: one for one in redecide(kept.journals("1.0", "parallel_tools")).divergences}.values()
    assert replay.about == "commands"
    assert "CallModel(" in replay.lines[0]


def test_a_debt_that_cannot_be_worked_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AttributeError("nothing there")

    monkeypatch.setattr(redecide_module, "owed", fail)
    replay = redecide(kept.journals("1.0", "parallel_tools"))
    assert replay.divergences[0].about == "commands"
    (line,) = replay.divergences[0].lines
    assert holds(line, "AttributeError", "nothing there")


# --- relatives


def test_what_child_and_parent_say_of_each_other_is_compared() -> None:
    family = kept.journals("1.0", "parallel_members")
    child = next(journal for journal in family if "_" in journal[0].entry.run)
    entry = child[0].entry
    accepted = entry.events[0]
    assert isinstance(accepted, ev.RunAccepted)
    other = msgspec.structs.replace(accepted.task, inputs={"side": "wrong"})
    events = [msgspec.structs.replace(accepted, task=other), *entry.events[1:]]
    child[0] = Journaled(child[0].seq, msgspec.structs.replace(entry, events=events))
    replay = redecide(family)
    assert [(one.run, one.about) for one in replay.divergences] == [(entry.run, "task")]
    assert 'task.inputs.side: journaled "wrong", now "left"' in replay.divergences[0].lines


def test_a_report_that_the_child_did_not_give() -> None:
    family = kept.journals("1.0", "selected_member")
    parent = next(journal for journal in family if "_" not in journal[0].entry.run)
    place, at, event = next(
        (place, at, event)
        for place, (_, entry) in enumerate(parent)
        for at, event in enumerate(entry.events)
        if isinstance(event, ev.DelegateFinished)
    )
    entry = parent[place].entry
    events = [*entry.events]
    events[at] = msgspec.structs.replace(event, output="something else")
    parent[place] = Journaled(parent[place].seq, msgspec.structs.replace(entry, events=events))
    assert [(one.n, one.about) for one in redecide(family).divergences] == [(entry.n, "report")]
