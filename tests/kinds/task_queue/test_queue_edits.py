"""People edit the queue of a run that goes on: what is begun stays as it is, and the first edit of a version counts."""

import itertools
import json
from typing import Any

import pytest

from cadre.journal import events as ev
from cadre.journal.steps import ActionStep
from cadre.kinds.task_queue.editing import FORMS
from cadre.kinds.task_queue.queue import rebuilt
from cadre.kinds.task_queue.records import QueueEdited, queue_of
from cadre.protocol.messages import Edit
from harness.texts import holds
from kinds.task_queue.test_task_queue import PLAIN, begun, done, purpose, queue_spec, state, text
from unit.loop.build import Course, kinds, only, replay_of, sound

_NUMBERS = itertools.count()


def edit(course: Course, *operations: dict[str, Any], base: int | None = None) -> list[ev.AnyEvent]:
    version = state(course).version if base is None else base
    return course.arrive(
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
    course = begun(PLAIN, "one", "two", "three")
    events = edit(
        course,
        {"op": "add", "task": " four ", "at": 0},
        {"op": "drop", "task": "TWO"},
        {"op": "edit", "task": "three", "text": "third"},
        {"op": "add", "task": "five"},
        {"op": "move", "task": "five", "at": 0},
    )
    assert kinds(events) == ["EditApplied", "QueueEdited"]
    assert only(events, QueueEdited).added == ["four", "five"]
    assert state(course).pending == ["one", "five", "four", "third"]
    (stale,) = edit(course, {"op": "drop", "task": "five"}, base=1)
    assert isinstance(stale, ev.EditRefused)
    assert (stale.version, state(course).made) == (2, 5)
    done(course)
    assert "Current task: five" in text(course)
    for _ in range(3):
        done(course)
    assert course.say(content="All.")[-1].__class__ is ev.RunFinished
    assert replay_of(course).divergences == []
    sound(course)


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
def test_an_edit_that_cannot_be_made_changes_nothing(
    operation: dict[str, Any], code: str, named: list[str]
) -> None:
    course = begun(PLAIN, "one", "two")
    (refused,) = edit(course, {"op": "add", "task": "three"}, operation)
    assert isinstance(refused, ev.EditRefused)
    assert refused.code == code
    assert holds(refused.reason, *named)
    assert (state(course).pending, state(course).version) == (["one", "two"], 1)


def test_no_more_tasks_than_the_agent_may_have() -> None:
    course = Course(queue_spec(type(PLAIN)(goals=["Be brief."], most=2, create=False))).begin()
    course.say(content='["one", "two"]')
    (refused,) = edit(course, {"op": "add", "task": "three"})
    assert isinstance(refused, ev.EditRefused)
    assert "task_queue.most" in refused.reason


def test_what_a_person_adds_comes_before_the_first_tasks() -> None:
    course = begun()
    edit(course, {"op": "add", "task": "mine"})
    course.say(content='["one", "Mine"]')
    assert state(course).pending == ["mine", "one"]


def test_a_task_that_comes_while_the_answer_is_written_is_done_first() -> None:
    course = begun(PLAIN, "one")
    done(course)
    assert purpose(course) == "conclude"
    edit(course, {"op": "add", "task": "two"})
    assert kinds(course.say(content="All is done.")) == [
        "ModelAnswered",
        "StepFinished",
        "StepStarted",
        "ModelCalled",
    ]
    assert "Current task: two" in text(course)
    done(course)
    assert "- two: 3" in text(course)
    assert only(course.say(content="Both are done."), ev.RunFinished).output == "Both are done."
    assert replay_of(course).divergences == []
    sound(course)


def test_no_edit_is_made_while_the_answer_is_checked() -> None:
    course = begun(PLAIN, "one", checks=["spell_check"])
    done(course)
    course.say(content="All is done.")
    (refused,) = edit(course, {"op": "add", "task": "two"})
    assert isinstance(refused, ev.EditRefused)
    assert "being checked" in refused.reason


def test_a_dropped_task_is_dropped_whatever_stage_the_queue_is_in() -> None:
    section = type(PLAIN)(goals=["Empty the inbox."])
    course = Course(queue_spec(section)).begin()
    course.say(content=json.dumps(["one", "two"]))
    done(course)
    assert purpose(course) == "create"
    edit(course, {"op": "drop", "task": "two"})
    course.say(content="[]")
    assert purpose(course) == "conclude"


def test_a_fork_begins_with_the_queue_as_it_was_edited() -> None:
    course = begun(PLAIN, "one", "two")
    edit(course, {"op": "add", "task": "three"})
    done(course)
    steps = [step for step in course.run.steps if isinstance(step, ActionStep)]
    assert rebuilt(steps, queue_of(course.spec)).pending == ["two", "three"]
