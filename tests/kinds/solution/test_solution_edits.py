"""Tests of what a person changes about a whole solution before anything of it is made, story by story."""

from typing import Any

import pytest

from cadre.journal import events as ev
from cadre.kinds.solution.records import SolutionSpec
from harness.texts import holds
from kinds.solution.build import ADD, KID, LOOK, decides, last_read, proposes, solver
from unit.loop.build import kinds, only, report, result, sound


def held_solution() -> Any:
    sim = solver(SolutionSpec(approve="always")).begin()
    proposes(sim, LOOK, ADD, KID)
    return sim


def made_by(events: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    called = [event for event in events if isinstance(event, ev.ToolCalled | ev.DelegateStarted)]
    return [
        (one.tool, one.arguments) if isinstance(one, ev.ToolCalled) else (one.member, {"task": one.task})
        for one in called
    ]


@pytest.mark.parametrize(
    ("edits", "made", "named"),
    [
        (
            [{"call": 2, "drop": True}, {"call": 3, "drop": True}],
            [LOOK],
            ["dropped", "2 (add)", "3 (kid)"],
        ),
        (
            [{"call": 2, "arguments": {"a": 9}}],
            [LOOK, {"name": "add", "arguments": {"a": 9, "b": 2}}, KID],
            ["changed", "2 (add)", '{"a":9}'],
        ),
        (
            [{"call": 1, "tool": "add", "arguments": {"a": 3, "b": 4}}],
            [{"name": "add", "arguments": {"a": 3, "b": 4}}, ADD, KID],
            ["1 (look)", "add", '{"a":3,"b":4}'],
        ),
        (
            [{"tool": "look", "arguments": {"at": "sea"}}],
            [LOOK, ADD, KID, {"name": "look", "arguments": {"at": "sea"}}],
            ["added", "look", '{"at":"sea"}'],
        ),
    ],
)
def test_a_person_changes_what_was_proposed(edits: list[Any], made: list[Any], named: list[str]) -> None:
    sim = held_solution()
    events = decides(sim, "corrected", edits=edits, feedback="As we said.")
    assert only(events, ev.ApprovalDecided).edits
    assert made_by(events) == [(one["name"], one["arguments"]) for one in made]
    for held in list(sim.run.open_calls()):
        if held.kind == "member":
            sim.arrive(report(held.id, text="Helped."))
        else:
            sim.arrive(result(held.id, 3, tool=held.name))
    review, *outcomes = last_read(sim).split("\n\n")
    assert holds(review, *named, "As we said.")
    assert len(outcomes) == len(made)
    sound(sim)


def test_all_calls_dropped_is_another_request() -> None:
    sim = held_solution()
    edits = [{"call": number, "drop": True} for number in (1, 2, 3)]
    assert kinds(decides(sim, "corrected", edits=edits)) == [
        "ApprovalDecided",
        "StepFinished",
        "ModelCalled",
    ]
    assert holds(last_read(sim), "1 (look)", "2 (add)", "3 (kid)")
    sound(sim)


@pytest.mark.parametrize(
    "edit",
    [
        {"call": 4, "drop": True},
        {"call": 1},
        {"arguments": {"a": 1}},
        {"tool": "nobody"},
        {"call": 1, "arguments": {"far": True}},
    ],
)
def test_an_edit_that_cannot_be_made_leaves_the_solution_waiting(edit: dict[str, Any]) -> None:
    sim = held_solution()
    assert kinds(decides(sim, "corrected", edits=[edit])) == ["RecordIgnored"]
    assert [call.kind for call in sim.run.open_calls()] == ["question"]
    assert kinds(decides(sim, "approved"))[0] == "ApprovalDecided"
    assert kinds(decides(sim, "rejected")) == ["RecordIgnored"], "the first decision counts"
    sound(sim)
