"""How a model is asked for calls: as its API's own, as JSON held to a schema, or as JSON that the prompt asks for.

What was answered in text is read again as that text, and its outcomes as messages of the user: see
`cadre.engine.chat`.
"""

from cadre.engine.answers.json_text import ReadingError
from cadre.engine.answers.stop_sequences import STOP_SEQUENCES
from cadre.engine.calls.call_check import FINAL_ANSWER_SCHEMA, open_arguments
from cadre.engine.calls.call_schema import call_schema
from cadre.engine.chat import as_text
from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ModelRequest
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.run import Run
from cadre.prompting.tool_text import to_call
from cadre.protocol.messages import ErrorInfo
from cadre.spec.model import NamedFunction


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
    """Return what a model reads of an answer that holds no call: with the form of one, which helps it most."""
    alone = "" if asked_model(run).calls == "native" else " and nothing else"
    return error.info.saying(f"{error.sentence} Answer with a call of this form{alone}: {shown_call(run)}")


def shown_call(run: Run) -> str:
    """Return a call as the run's model is to write it: of a function that it has, with its arguments left open."""
    name, schema = FINAL_ANSWER, FINAL_ANSWER_SCHEMA
    for one in run.tools.values():
        name, schema = one.name, one.input_schema
        break
    return to_call(name, open_arguments(schema), "schema" if asked_model(run).calls == "schema" else "text")
