"""Plans that people edit: before anything is done and while steps are under way; what has begun stays as it is."""

from typing import Any

import pytest

from cadre.engine.kind import kind_of
from cadre.journal import events as ev
from cadre.kinds.plan.records import PlanMade
from harness.texts import holds
from kinds.plan.build import ADD, LOOK, begun, decide, done, edit, failed, plan, purpose, state, states
from unit.loop.build import SimulatedRun, sound

STEPS: list[dict[str, Any]] = [{"step": 1, **ADD}, {"step": 2, **LOOK, "needs": [1]}]


def refused(event: ev.AnyEvent) -> ev.EditRefused:
    assert isinstance(event, ev.EditRefused)
    return event


def shown(sim: SimulatedRun) -> dict[str, Any]:
    found = kind_of(sim.run).editable(sim.run)
    assert found is not None
    return dict(found.state)


def test_steps_are_added_changed_and_dropped_while_others_run() -> None:
    sim = begun(*STEPS)
    assert state(sim).version == 1
    edit(sim, {"op": "add", "step": {"action": "add", "args": {"a": 7, "b": 7}}})
    assert states(sim) == {1: "running", 2: "pending", 3: "running"}
    assert state(sim).version == 2
    edit(
        sim,
        {"op": "change", "step": 2, "args": {"at": "sea"}},
        {"op": "add", "step": {"task": "Tell.", "needs": [2]}},
    )
    edit(sim, {"op": "drop", "step": 4})
    done(sim, 3, 14)
    done(sim, 1)
    assert sim.run.open_calls()[0].arguments == {"at": "sea"}
    done(sim, 2, "wet")
    assert sim.run.result is not None
    assert sim.run.result.output == "wet"
    sound(sim)


def test_a_step_that_has_begun_cannot_be_changed() -> None:
    sim = begun(*STEPS)
    for operation in (
        {"op": "change", "step": 1, "args": {"a": 9, "b": 9}},
        {"op": "drop", "step": 1},
        {"op": "replace", "steps": [{"step": 1, "action": "look", "args": {"at": "sea"}}]},
        {"op": "replace", "steps": []},
    ):
        event = refused(edit(sim, operation))
        assert event.code == "edit-too-late"
        assert "step 1" in event.reason
    assert states(sim) == {1: "running", 2: "pending"}
    sound(sim)


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        ({"op": "drop", "step": 5}, ["5"]),
        ({"op": "add", "step": {"action": "sing", "task": "x"}}, ["'sing'"]),
        ({"op": "add", "step": {"task": "x", "needs": [9]}}, ["9"]),
        ({"op": "drop", "step": 2, "why": "no"}, ["'why'", "add", "change", "replace"]),
        ({"op": "change", "step": 2, "needs": [2]}, ["2"]),
        ({"op": "change", "step": 2, "args": {"at": 7}}, ["'look'", "at", "7"]),
    ],
)
def test_an_edit_that_cannot_be_made_names_what_is_wrong(operation: dict[str, Any], named: list[str]) -> None:
    event = refused(edit(begun(*STEPS), operation))
    assert event.code == "invalid-edit"
    assert holds(event.reason, *named)


def test_the_first_edit_of_a_version_counts() -> None:
    sim = begun(*STEPS)
    edit(sim, {"op": "drop", "step": 2})
    late = refused(edit(sim, {"op": "drop", "step": 2}, base=1))
    assert (late.version, late.code) == (2, "stale-version")
    failed(sim, 1)
    assert refused(edit(sim, {"op": "add", "step": {"task": "x"}})).code == "edit-too-late"
    sim.say(content=plan({"step": 1, **ADD}))
    assert state(sim).version == 3
    sound(sim)


def test_a_whole_plan_takes_the_place_of_what_has_not_begun() -> None:
    sim = begun(*STEPS)
    whole = [STEPS[0], {"step": 2, **ADD, "needs": []}, {"step": 5, "task": "Tell {{ step_1 }}."}]
    events = [edit(sim, {"op": "replace", "steps": whole})]
    assert isinstance(events[0], ev.EditApplied)
    made = [event for event in sim.journal()[-1].events if isinstance(event, PlanMade)]
    assert [step.step for step in made[0].steps] == [2, 5]
    assert states(sim) == {1: "running", 2: "running", 5: "pending"}
    sound(sim)


def test_a_plan_is_edited_before_a_person_agrees() -> None:
    sim = begun(*STEPS, approve_plan=True)
    assert shown(sim)["state"] == "PLANNING"
    edit(sim, {"op": "change", "step": 1, "args": {"a": 8, "b": 8}}, {"op": "drop", "step": 2})
    assert states(sim) == {1: "pending"}
    decide(sim, "approved")
    assert sim.run.open_calls()[0].arguments == {"a": 8, "b": 8}
    sound(sim)


def test_a_plan_that_is_not_there_yet_cannot_be_edited() -> None:
    sim = begun()
    assert purpose(sim) == "make_plan"
    assert shown(sim) == {"state": "PLANNING", "steps": []}
    assert refused(edit(sim, {"op": "add", "step": {"task": "x"}})).code == "edit-too-late"


def test_a_blocked_step_may_be_made_to_go_another_way() -> None:
    sim = begun(*STEPS, {"step": 3, **LOOK, "needs": []}, replans=0)
    failed(sim, 1)
    assert [step["state"] for step in shown(sim)["steps"]] == ["failed", "skipped", "running"]
    edit(sim, {"op": "change", "step": 2, "needs": []})
    assert states(sim)[2] == "running"
    sound(sim)


def test_people_see_the_state_of_each_step() -> None:
    sim = begun(*STEPS, fields={"approvals": {"add": "always"}})
    assert shown(sim)["steps"][0]["state"] == "waiting"
    decide(sim, "approved")
    assert shown(sim)["state"] == "WAITING_FOR_TOOLS"
    done(sim, 1, 3)
    first = shown(sim)["steps"][0]
    assert (first["state"], first["result"], first["args"]) == ("done", 3, {"a": 1, "b": 2})
    done(sim, 2, "blue")
    assert shown(sim)["state"] == "COMPLETED"
