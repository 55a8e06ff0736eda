"""Tests of what each kind of agent asks of its model, by how calls are made and whether the answer has a schema."""

import pytest

from cadre.kinds.code.section import CodeSpec
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of, sections
from cadre.spec.model import CallForm, ModelSpec, StructuredForm

TOOLS, SCHEMA = "tools", "json_schema"


@pytest.mark.parametrize(
    ("kind", "form", "asks"),
    [
        ("tool_calling", "native", {TOOLS}),
        ("tool_calling", "schema", {SCHEMA}),
        ("tool_calling", "text", set()),
        ("code", "native", set()),
        ("goals", "native", set()),
        ("goals", "schema", {SCHEMA}),
        ("task_queue", "native", set()),
        ("task_queue", "schema", {SCHEMA}),
        ("plan", "native", {TOOLS}),
        ("plan", "text", set()),
        ("workflow", "native", {SCHEMA}),
        ("workflow", "schema", {SCHEMA}),
        ("workflow", "text", set()),
    ],
)
def test_by_the_form_of_calls(kind: str, form: CallForm, asks: set[str]) -> None:
    spec = AgentSpec(name="a", description="Works.", kind=kind, model=ModelSpec(calls=form))
    assert facts_of(spec, kind).capabilities == asks


@pytest.mark.parametrize("structured", ["auto", "schema", "object", "prompt"])
def test_answers_that_are_held_to_a_schema(structured: StructuredForm) -> None:
    model = ModelSpec(calls="native", structured=structured)
    spec = AgentSpec(name="a", description="Works.", kind="goals", model=model)
    assert facts_of(spec, "goals").capabilities == ({SCHEMA} if structured == "schema" else set())


def test_last_answers_and_structured_code() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    calling = AgentSpec(name="a", description="Works.", output_schema=schema)
    assert facts_of(calling).capabilities == {TOOLS, SCHEMA}
    for code, output_schema in ((CodeSpec(structured=True), None), (CodeSpec(), schema)):
        spec = AgentSpec(name="a", description="Works.", kind="code", output_schema=output_schema, **sections(code))
        assert facts_of(spec, "code").capabilities == {SCHEMA}
