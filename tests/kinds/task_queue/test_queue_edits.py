"""People edit the queue of a run that goes on: what is begun stays as it is, and the first edit of a version counts."""

import itertools
import json
from typing import Any

import pytest

from cadre.journal import events as ev
from cadre.journal.run import ActionStep
from cadre.kinds.task_queue.queue import FORMS, rebuilt
from cadre.kinds.task_queue.records import QueueEdited, queue_of
from cadre.protocol.messages import Edit
from harness.texts import holds
from kinds.task_queue.test_task_queue import PLAIN, begun, done, purpose, queue_spec, state, text
from unit.loop.build import SimulatedRun, kinds, only, replay_of, sound

_NUMBERS = itertools.count()


def edit(sim: SimulatedRun, *operations: dict[str, Any], base: int | None = None) -> list[ev.AnyEvent]:
    version = state(sim).version if base is None else base
    return sim.arrive(
        Edit(
            id=f"e{next(_NUMBERS)}",
            tree="r1",
            run="r1",
            at=2.0,
            base=version,
            operations=[*operations],
            sender="ann",
        )
    )


def test_tasks_that_wait_are_added_dropped_reworded_and_moved() -> None:
    sim = begun(PLAIN, "one", "two", "three")
    events = edit(
        sim,
        {"op": "add", "task": " four ", "at": 0},
        {"op": "drop", "task": "TWO"},
        {"op": "edit", "task": "three", "text": "third"},
        {"op": "add", "task": "five"},
        {"op": "move", "task": "five", "at": 0},
    )
    assert kinds(events) == ["EditApplied", "QueueEdited"]
    assert only(events, QueueEdited).added == ["four", "five"]
    assert state(sim).pending == ["one", "five", "four", "third"]
    (stale,) = edit(sim, {"op": "drop", "task": "five"}, base=1)
    assert isinstance(stale, ev.EditRefused)
    assert (stale.version, state(sim).made) == (2, 5)
    done(sim)
    assert "Current task: five" in text(sim)
    for _ in range(3):
        done(sim)
    assert sim.say(content="All.")[-1].__class__ is ev.RunFinished
    assert replay_of(sim).divergences == []
    sound(sim)


@pytest.mark.parametrize(
    ("operation", "code", "named"),
    [
        ({"op": "drop", "task": "one"}, "edit-too-late", ["'one'"]),
        ({"op": "edit", "task": "One ", "text": "other"}, "edit-too-late", ["'One '"]),
        ({"op": "drop", "task": "nine"}, "invalid-edit", ["'nine'"]),
        ({"op": "add", "task": "TWO"}, "invalid-edit", ["'TWO'"]),
        ({"op": "add", "task": "  "}, "invalid-edit", ["1 to 1000"]),
        ({"op": "add", "task": "x" * 1_001}, "invalid-edit", ["1 to 1000"]),
        ({"op": "add", "task": "new", "at": 9}, "invalid-edit", ["`at`", "0 to 2", "9"]),
        ({"op": "add", "task": "new", "to": 0}, "invalid-edit", ["'to': 0", FORMS]),
        ({"op": "move", "task": "two", "at": True}, "invalid-edit", ["`at`", "True"]),
        ({"op": "clear"}, "invalid-edit", ["'clear'", FORMS]),
    ],
)
def test_an_edit_that_cannot_be_made_changes_nothing(operation: dict[str, Any], code: str, named: list[str]) -> None:
    sim = begun(PLAIN, "one", "two")
    (refused,) = edit(sim, {"op": "add", "task": "three"}, operation)
    assert isinstance(refused, ev.EditRefused)
    assert refused.code == code
    assert holds(refused.reason, *named)
    assert (state(sim).pending, state(sim).version) == (["one", "two"], 1)


def test_no_more_tasks_than_the_agent_may_have() -> None:
    sim = SimulatedRun(queue_spec(type(PLAIN)(goals=["Be brief."], most=2, create=False))).begin()
    sim.say(content='["one", "two"]')
    (refused,) = edit(sim, {"op": "add", "task": "three"})
    assert isinstance(refused, ev.EditRefused)
    assert "task_queue.most" in refused.reason


def test_what_a_person_adds_comes_before_the_first_tasks() -> None:
    sim = begun()
    edit(sim, {"op": "add", "task": "mine"})
    sim.say(content='["one", "Mine"]')
    assert state(sim).pending == ["mine", "one"]


def test_a_task_that_comes_while_the_answer_is_written_is_done_first() -> None:
    sim = begun(PLAIN, "one")
    done(sim)
    assert purpose(sim) == "conclude"
    edit(sim, {"op": "add", "task": "two"})
    assert kinds(sim.say(content="All is done.")) == [
        "ModelAnswered",
        "StepFinished",
        "StepStarted",
        "ModelCalled",
    ]
    assert "Current task: two" in text(sim)
    done(sim)
    assert "- two: 3" in text(sim)
    assert only(sim.say(content="Both are done."), ev.RunFinished).output == "Both are done."
    assert replay_of(sim).divergences == []
    sound(sim)


def test_no_edit_is_made_while_the_answer_is_checked() -> None:
    sim = begun(PLAIN, "one", checks=["spell_check"])
    done(sim)
    sim.say(content="All is done.")
    (refused,) = edit(sim, {"op": "add", "task": "two"})
    assert isinstance(refused, ev.EditRefused)
    assert "being checked" in refused.reason


def test_a_dropped_task_is_dropped_whatever_stage_the_queue_is_in() -> None:
    section = type(PLAIN)(goals=["Empty the inbox."])
    sim = SimulatedRun(queue_spec(section)).begin()
    sim.say(content=json.dumps(["one", "two"]))
    done(sim)
    assert purpose(sim) == "create"
    edit(sim, {"op": "drop", "task": "two"})
    sim.say(content="[]")
    assert purpose(sim) == "conclude"


def test_a_fork_begins_with_the_queue_as_it_was_edited() -> None:
    sim = begun(PLAIN, "one", "two")
    edit(sim, {"op": "add", "task": "three"})
    done(sim)
    steps = [step for step in sim.run.steps if isinstance(step, ActionStep)]
    assert rebuilt(steps, queue_of(sim.spec)).pending == ["two", "three"]
