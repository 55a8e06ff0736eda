"""How agents that work on goals, or through a queue, ask for JSON: under a schema until the endpoint refuses one."""

import pytest

from cadre.journal import events as ev
from cadre.kinds.goals.records import GoalsState
from cadre.kinds.task_queue.records import QueueState
from cadre.spec.model import ModelSpec
from kinds.goals.build import begun, request_of, says
from kinds.task_queue.test_task_queue import asked
from kinds.task_queue.test_task_queue import begun as queued
from unit.loop.build import kinds, only, sound

REFUSED = "status 400: response_format is not supported"


def test_a_schema_is_sent_until_it_is_refused() -> None:
    course = begun()
    schema = request_of(course).schema
    assert schema is not None
    assert "thoughts" in schema["properties"]
    assert kinds(course.fail(REFUSED, final=True, about_form=True)) == ["JsonFormRefused", "ModelCalled"]
    assert (request_of(course).schema, request_of(course).json_object) == (None, True)
    course.fail(REFUSED, final=True, about_form=True)
    assert (request_of(course).schema, request_of(course).json_object) == (None, False)
    assert isinstance(course.run.own, GoalsState)
    says(course, "finish", response="done")
    sound(course)


def test_tasks_are_asked_for_under_a_schema_and_never_in_a_mode_for_objects() -> None:
    course = queued()
    schema = asked(course).schema
    assert schema is not None
    assert list(schema["properties"]) == ["tasks"]
    course.fail(REFUSED, final=True, about_form=True)
    assert (asked(course).schema, asked(course).json_object) == (None, False)
    course.say(content='{"tasks": ["one"]}')
    assert isinstance(course.run.own, QueueState)
    assert (course.run.own.pending, course.run.own.form) == (["one"], "object")
    assert (asked(course).schema, asked(course).json_object) == (None, True)


@pytest.mark.parametrize("form", ["schema", "object", "prompt"])
def test_a_form_that_was_chosen_stays(form: str) -> None:
    course = begun(model=ModelSpec(structured=form))  # type: ignore[arg-type]
    assert (request_of(course).schema is not None, request_of(course).json_object) == (
        form == "schema",
        form == "object",
    )
    assert only(course.fail(REFUSED, final=True, about_form=True), ev.RunFinished).state == "error"
