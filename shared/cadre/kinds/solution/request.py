"""How a model is asked for a solution, in the form that its endpoint takes."""

from cadre.engine.answers.json_form import form_of
from cadre.engine.kind import Chat
from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal.run import Run
from cadre.prompting.tool_text import to_json


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
