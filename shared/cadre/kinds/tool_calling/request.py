"""How a model is asked for calls: as its API's own, as JSON held to a schema, or as JSON that the prompt asks for.

What was answered in text is read again as that text, and its outcomes as messages of the user: see
`cadre.engine.chat`.
"""

from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.stop_sequences import STOP_SEQUENCES
from cadre.engine.calls.call_schema import call_schema
from cadre.engine.chat import as_text
from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ModelRequest
from cadre.journal.run import Run
from cadre.protocol.messages import ErrorInfo
from cadre.spec.model import NamedFunction

_FORMS = {
    "schema": '{"function": {"name": "some_tool", "arguments": {"some_argument": "value"}}}',
    "text": '{"name": "some_tool", "arguments": {"some_argument": "value"}}',
}


def ask_for_calls(run: Run, chat: Chat) -> ModelRequest:
    """The question for the next calls, in the form that the agent's model takes."""
    model, messages, functions = asked_model(run), chat.messages(run), chat.functions()
    if model.calls == "native":
        asked = ModelRequest(messages=messages, tools=functions)
        asked.tool_choice = "auto" if run.truncated else None
        return asked
    messages = as_text(messages)
    if model.calls == "text":
        return ModelRequest(messages=messages, stop=STOP_SEQUENCES)
    if isinstance(named := model.tool_choice, NamedFunction):
        functions = [one for one in functions if one["function"]["name"] == named.function] or functions
    # A stop sequence within an argument would cut the JSON.
    return ModelRequest(messages=messages, schema=call_schema(functions))


def unreadable(run: Run, error: ReadingError) -> ErrorInfo:
    """What a model reads of an answer that holds no call; one that must write calls as text is shown how."""
    form = _FORMS.get(asked_model(run).calls)
    if form is None:
        return error.info
    return error.info.saying(f"{error} Answer with JSON of this form and nothing else: {form}")
