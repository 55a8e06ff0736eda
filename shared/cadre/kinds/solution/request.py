"""How a model is asked for JSON: held to the schema, in JSON mode, or by the prompt alone; which, may be learned."""

import re

from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal.run import Run
from cadre.kinds.solution.records import SolutionState
from cadre.prompting.tool_text import to_json

_NEXT_FORM = {"schema": "object", "object": "prompt"}
_ABOUT_FORMS = re.compile(
    r"response_?format|json_?schema|json_?object|json mode|structured|grammar", re.IGNORECASE
)
"""How an endpoint names what it refuses."""


def form_of(run: Run) -> str:
    """In which form the run's model is asked: `schema`, `object` or `prompt`."""
    wanted = asked_model(run).structured
    if wanted != "auto":
        return wanted
    return (run.own.form if isinstance(run.own, SolutionState) else "") or "schema"


def form_after(run: Run, reason: str) -> str | None:
    """The form to ask in when the endpoint refused with this reason; None when it refused something else."""
    if asked_model(run).structured != "auto" or not _ABOUT_FORMS.search(reason):
        return None
    return _NEXT_FORM.get(form_of(run))


def ask_for_json(
    run: Run, chat: Chat, messages: list[ChatMessage], schema: dict[str, object]
) -> ModelRequest:
    """The request for JSON that fits the schema. Stop sequences would cut it within an argument."""
    form = form_of(run)
    if form == "schema":
        return ModelRequest(messages=messages, schema=schema)
    first, *others = messages
    told = f"{first['content']}\n\n{chat.rendered('solution.form', schema=to_json(schema))}"
    return ModelRequest(messages=[{**first, "content": told}, *others], json_object=form == "object")
