"""The kind `tool_calling`: the model calls tools, natively or in its text; `final_answer` ends the run.

Each call has its own outcome: a refused one never takes its siblings along. The order is the model's, and call ids are
derived from it, not from the ids that the model chose.
"""

import re
from typing import Any

from cadre.engine.answers.answer_form import answer_of
from cadre.engine.answers.json_text import UNREADABLE, ReadingError, decode_text, read_arguments
from cadre.engine.calls.call_check import FINAL_ANSWER_SCHEMA, CallNotAllowed, check_call, open_arguments
from cadre.engine.calls.call_dialects import read_in_form
from cadre.engine.calls.call_schema import call_schema
from cadre.engine.calls.calls_in_text import Schema, schemas_of
from cadre.engine.chat import as_text
from cadre.engine.draft import Draft
from cadre.engine.kind import Chat
from cadre.engine.model_request import ModelRequest, asked_model
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.stepwise import Stepwise
from cadre.prompting.tool_text import to_call
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec
from cadre.spec.model import NamedFunction
from cadre.spec.names import FINAL_ANSWER

_ARGUMENTS = re.compile(r"[\"'](?:arguments|args|parameters)[\"']\s*:|<(?:arg_key|parameter)\b")
"""The beginning of a call in a text."""


def _any(name: str) -> Schema | None:
    """Return what any function may take, to see whether an answer is whole."""
    return {"type": "object"}


class ToolCallingKind(Stepwise):
    """`cadre.engine.kind.Kind` for agents that call tools."""

    def act(self, draft: Draft, reply: ModelReplied) -> None:
        run = draft.run
        try:
            calls = reply.calls or read_in_form(reply.content, schemas_of(run), asked_model(run).calls)
        except ReadingError as error:
            self.go_on(draft, unreadable(run, error))
            return
        arguments = self._final_answer(run, calls[0]) if len(calls) == 1 else None
        if arguments is not None:
            draft.answer(answer_of(run, with_values(run, arguments)["answer"]), arguments)
        else:
            draft.call(calls)

    def action_request(self, run: Run, chat: Chat) -> ModelRequest:
        return ask_for_calls(run, chat)

    def arguments(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        return with_values(run, arguments)

    def is_whole(self, spec: AgentSpec, reply: ModelReplied) -> bool:
        try:
            if reply.calls and isinstance(arguments := reply.calls[-1].arguments, str):
                decode_text(arguments)
            return bool(reply.calls or read_in_form(reply.content, _any, spec.model.calls))
        except (ReadingError, *UNREADABLE):
            return False

    def when_cut(self, run: Run, reply: ModelReplied) -> str:
        """Writing less helps only where a call was too long."""
        shown = shown_call(run)
        if reply.calls or _ARGUMENTS.search(reply.content):
            return f"End your answer with its call, and give shorter arguments. The form of a call: {shown}"
        return f"It held no call. Begin your answer with a call of this form, and end it there: {shown}"

    def _final_answer(self, run: Run, call: RequestedCall) -> dict[str, Any] | None:
        """Return the arguments of a call of `final_answer`; None for any other, and for one that is wrong, which is
        refused like any other then."""
        if call.name != FINAL_ANSWER:
            return None
        try:
            arguments = read_arguments(call)
            check_call(run, call.name, arguments)
        except (ReadingError, CallNotAllowed):
            return None
        return arguments


TOOL_CALLING = ToolCallingKind()


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


STOP_SEQUENCES = ["\nObservation:", "\nCalling tools:"]
"""smolagents' stop sequences for tool-calling agents, as lines begin with them: JSON holds no line break in a text."""


def with_values(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with every text that names a variable replaced by the variable's value."""
    variables = run.task.inputs if run.task else {}
    if not variables:
        return arguments
    return {
        name: variables[value] if isinstance(value, str) and value in variables else value
        for name, value in arguments.items()
    }
