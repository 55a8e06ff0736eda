"""Tools and members as an iteration names them, and the JSON Schema of its answer."""

from typing import Any

from cadre.engine.answers.answer_form import final_answer_parameters
from cadre.engine.answers.json_form import form_after, form_of
from cadre.engine.calls.call_check import input_schema
from cadre.engine.calls.call_schema import ANY_ANSWER, call_union, object_of
from cadre.engine.calls.calls_in_text import SchemaOf
from cadre.engine.chat import functions
from cadre.engine.draft import Draft
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.arrivals import ModelFailed
from cadre.journal.run import Run
from cadre.kinds.iteration.parse import THINK, THINK_PARAMETERS, plain_name, takes_own
from cadre.kinds.iteration.records import FINISH, JsonFormRefused

_TEXT = {"type": "string"}


def name_in_toolset(run: Run, name: str) -> str:
    """The tool or member that the model means; the name as it is where there is none.

    Names are compared without case and blanks, and where that finds none, without `_` and `-` too.
    """
    known = [*run.tools, *run.members]
    if name in known:
        return name
    for without in ("", "_-"):
        wanted = _bare(name, without)
        alike = [one for one in known if _bare(one, without) == wanted]
        if len(alike) == 1:
            return alike[0]
    return name.strip()


def offered_schemas(run: Run) -> SchemaOf:
    """What the tools of an iteration take, by the names that the model may give them."""
    return lambda name: takes_own(name) or input_schema(run, name_in_toolset(run, name))


def _bare(name: str, without: str) -> str:
    return plain_name(name).translate({ord(sign): None for sign in without})


def iteration_schema(run: Run, *, think: bool, ends: bool = True) -> dict[str, Any]:
    """The JSON Schema of thoughts and one of the tools that the run has at this moment; `ends`: or of `finish`."""
    form = final_answer_parameters(run)
    is_open = run.spec is None or run.spec.output_schema is None
    about = {"response": ANY_ANSWER if is_open else form["properties"]["answer"]}
    response = {**form, "properties": about, "required": ["response"]}
    offered = [one["function"] for one in functions(run) if one["function"]["name"] != FINAL_ANSWER]
    offered += [{"name": THINK, "parameters": THINK_PARAMETERS}] if think else []
    definitions: dict[str, Any] = {}
    offered += [{"name": FINISH, "parameters": response}] if ends or not offered else []
    union = call_union(offered, definitions, "args")
    thoughts = object_of(text=_TEXT, reasoning=_TEXT, plan=_TEXT, criticism=_TEXT, speak=_TEXT)
    return object_of(thoughts=thoughts, tool={"anyOf": union}) | (
        {"$defs": definitions} if definitions else {}
    )


def in_form(
    run: Run, messages: list[ChatMessage], schema: dict[str, Any], *, shown_as_object: bool = True
) -> ModelRequest:
    """A request for JSON, in the form that the model's endpoint takes (`model.structured`, or `calls: schema`).

    `shown_as_object`: what the prompt asks for is a JSON object, so that the endpoint's JSON mode may be used.
    """
    form = form_of(run)
    if form == "schema":
        return ModelRequest(messages=messages, schema=schema)
    return ModelRequest(messages=messages, json_object=form == "object" and shown_as_object)


def ask_in_next_form(draft: Draft) -> bool:
    """Ask the same question in the next form, if the endpoint has refused this one. Return False if it has not."""
    failure, asked = draft.arrival.what, draft.asked
    form = form_after(draft.run, failure) if isinstance(failure, ModelFailed) else None
    if form is None or asked is None or not isinstance(failure, ModelFailed):
        return False
    draft.note(JsonFormRefused(form=form, reason=failure.message))
    draft.ask(asked.purpose, asked.step, asked.attempt + 1)
    return True
