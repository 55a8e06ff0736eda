"""The form of an agent's answers: how its output schema is offered to the model, what its words come to, and what
becomes of an answer that was cut."""

from typing import Any

from cadre.engine.answers.json_text import values_in
from cadre.engine.answers.reasoning import behind_thought, for_people
from cadre.engine.calls.call_check import FINAL_ANSWER_SCHEMA
from cadre.engine.model_request import asked_model
from cadre.journal.arrivals import ModelFailed
from cadre.journal.run import Run
from cadre.protocol.messages import ErrorInfo
from cadre.spec.answer_schema import as_parameter, fitted, misfits

_ABOUT = FINAL_ANSWER_SCHEMA["properties"]["answer"]["description"]

LAST_WORD_FAILED = "Error in generating final LLM output: "
"""Before the reason, where the last answer itself could not be had: it is the run's answer, as in smolagents."""


def final_answer_parameters(run: Run) -> dict[str, Any]:
    """Return what `final_answer` takes."""
    return last_answer_form(run) or FINAL_ANSWER_SCHEMA


def last_answer_form(run: Run) -> dict[str, Any] | None:
    """JSON Schema of what the model is to write when its steps are used up; None: any text."""
    schema = run.spec.output_schema if run.spec is not None else None
    return as_parameter(schema, _ABOUT) if schema is not None else None


def answer_of(run: Run, given: Any) -> Any:
    """The answer of a call; models that write JSON as a text have meant the value."""
    schema = run.spec.output_schema if run.spec is not None else None
    if isinstance(given, str):
        given = behind_thought(given)
    return fitted(schema, given) if schema is not None else given


def last_answer_of(run: Run, text: str) -> Any:
    """Return what the model wrote when its steps were used up, without its thoughts: the value in it that fits the
    schema, bare, in a fence or behind words, else the text."""
    schema = run.spec.output_schema if run.spec is not None else None
    text = for_people(text).strip()
    if schema is None:
        return text
    for value in values_in(text):
        meant = value["answer"] if isinstance(value, dict) and value.keys() == {"answer"} else value
        for one in (meant, value):
            if not misfits(schema, one):
                return one
    return text


_NEXT_FORM = {"schema": "object", "object": "prompt"}


def form_of(run: Run) -> str:
    """In which form the run's model is asked: `schema`, `object` or `prompt`.

    What a run has learned of its endpoint stands in `form` of its kind's own state, "" until a form was refused.
    """
    wanted: str = asked_model(run).structured
    if wanted != "auto":
        return wanted
    return getattr(run.own, "form", "") or "schema"


def form_after(run: Run, failure: ModelFailed) -> str | None:
    """Return the form to ask in after this failure, or None if the endpoint did not refuse the form."""
    if asked_model(run).structured != "auto" or not failure.about_form:
        return None
    return _NEXT_FORM.get(form_of(run))


CUT = "length"
"""The `finish_reason` of an answer that was cut off at the limit of tokens."""

_CUT = "Your answer was cut off at the limit of tokens before it was whole, so nothing of it was done."

WRITE_LESS = "Write less at once."


def cut_off(advice: str = WRITE_LESS) -> ErrorInfo:
    """Return the error that the model reads of an answer that was cut off, with this advice."""
    return ErrorInfo("cut-off", f"{_CUT} {advice}")
