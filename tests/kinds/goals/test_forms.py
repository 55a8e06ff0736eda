"""Tests of how agents that work on goals, or through a queue, ask for JSON: under a schema until the endpoint refuses
one."""

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
    sim = begun()
    schema = request_of(sim).schema
    assert schema is not None
    assert "thoughts" in schema["properties"]
    assert kinds(sim.fail(REFUSED, final=True, about_form=True)) == ["JsonFormRefused", "ModelCalled"]
    assert (request_of(sim).schema, request_of(sim).json_object) == (None, True)
    sim.fail(REFUSED, final=True, about_form=True)
    assert (request_of(sim).schema, request_of(sim).json_object) == (None, False)
    assert isinstance(sim.run.own, GoalsState)
    says(sim, "finish", response="done")
    sound(sim)


def test_tasks_are_asked_for_under_a_schema_and_never_in_a_mode_for_objects() -> None:
    sim = queued()
    schema = asked(sim).schema
    assert schema is not None
    assert list(schema["properties"]) == ["tasks"]
    sim.fail(REFUSED, final=True, about_form=True)
    assert (asked(sim).schema, asked(sim).json_object) == (None, False)
    sim.say(content='{"tasks": ["one"]}')
    assert isinstance(sim.run.own, QueueState)
    assert (sim.run.own.pending, sim.run.own.form) == (["one"], "object")
    assert (asked(sim).schema, asked(sim).json_object) == (None, True)


@pytest.mark.parametrize("form", ["schema", "object", "prompt"])
def test_a_form_that_was_chosen_stays(form: str) -> None:
    sim = begun(model=ModelSpec(structured=form))  # type: ignore[arg-type]
    assert (request_of(sim).schema is not None, request_of(sim).json_object) == (
        form == "schema",
        form == "object",
    )
    assert only(sim.fail(REFUSED, final=True, about_form=True), ev.RunFinished).state == "error"
