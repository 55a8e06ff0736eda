"""Apply a task's settings to its run: fields of the spec, and values of its variables."""

from typing import Any, TypeVar

import msgspec

from cadre.engine.context.text_size import observation_of
from cadre.journal.run import Run
from cadre.protocol.messages import Task
from cadre.spec.agent import AgentSpec, spec_from
from cadre.spec.expressions import ExpressionError, filled
from cadre.spec.kinds import facts_of

T = TypeVar("T", str, list[str], dict[str, Any])


def spec_of(task: Task, spec: AgentSpec) -> AgentSpec:
    """Return the spec that holds in the run of a task: fields of the task stand for the agent's, each of its sections
    for that of the same kind.

    Raises SpecError or ValidationError if they do not hold.
    """
    own = dict(task.spec)
    if task.terms.output_schema is not None:
        own["output_schema"] = task.terms.output_schema
    if not own:
        return spec
    fields = msgspec.to_builtins(spec)
    if "sections" in own:
        kinds = [section["kind"] for section in own["sections"]]
        kept = [section for section in fields.get("sections", []) if section["kind"] not in kinds]
        own["sections"] = [*kept, *own["sections"]]
    return spec_from({**fields, **own})


def with_inputs(run: Run, texts: T) -> T:
    """Return texts of the agent with the task's inputs in place of their variables, where its kind has such. A text
    without a value stays as it is: the run has ended for it as it began."""
    try:
        return filled_texts(run, texts)
    except ExpressionError:
        return texts


def filled_texts(run: Run, texts: T) -> T:
    """The same. Raises ExpressionError for a text without a value."""
    if run.spec is None or run.task is None or not facts_of(run.spec, run.decided_by).has_variables:
        return texts
    values = {"inputs": run.task.inputs, **run.task.inputs}

    def text_of(value: Any) -> Any:
        match value:
            case str():
                return observation_of(filled(value, values))
            case list():
                return [text_of(one) for one in value]
            case dict():
                return {name: text_of(one) for name, one in value.items()}
            case _:
                return value

    found: T = text_of(texts)
    return found
