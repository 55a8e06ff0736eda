"""Provide what templates and conditions of a workflow read, and what a model reads of it."""

from typing import Any

import msgspec

from cadre.engine.context.context_budget import known_room
from cadre.engine.context.text_size import fit, observation_of
from cadre.journal.run import Run
from cadre.kinds.workflow.records import FailedStep, WorkflowState
from cadre.kinds.workflow.section import workflow_of
from cadre.spec.expressions import filled


def values_of(run: Run, state: WorkflowState) -> dict[str, Any]:
    """The values by their names. A result has its step's name."""
    task = run.task
    assert task is not None
    assert run.spec is not None
    given = workflow_of(run.spec).given
    if given is None:
        values: dict[str, Any] = {"task": task.task, "inputs": task.inputs}
    else:
        values = {**given, **task.inputs}
    values |= {"visits": state.visits, "now": state.started_at, **state.results}
    ending, error = state.ending, state.error
    if ending is not None:
        values["undone"] = msgspec.to_builtins(ending.undone)
        error = error or FailedStep.of("", ending.error)
    if error is not None:
        values["error"] = msgspec.to_builtins(error)
    return values


def text_of(template: str, values: dict[str, Any]) -> str:
    """Return a template as text, for any value that it gives. Raises ExpressionError."""
    return observation_of(filled(template, values))


def results_told(run: Run, state: WorkflowState) -> str:
    """Return what the steps so far gave, as a model reads it: each with its share of what there is room for."""
    if not state.results:
        return ""
    most = known_room(run) // 4 // len(state.results)
    texts = {name: fit(observation_of(value), most) for name, value in state.results.items()}
    return "\n".join(f'<result step="{name}">\n{text}\n</result>' for name, text in texts.items())
