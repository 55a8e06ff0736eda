"""The kind `tool_calling`: the model calls tools, natively or in its text; `final_answer` ends the run.

Each call has its own outcome: a refused one never takes its siblings along. The order is the model's, and call ids are
derived from it, whatever ids the model chose.
"""

import re
from typing import Any

from cadre.engine.answers.answer_form import answer_of
from cadre.engine.answers.json_text import UNREADABLE, ReadingError, decode_text, read_arguments
from cadre.engine.calls.call_check import CallNotAllowed, check_call
from cadre.engine.calls.call_dialects import read_in_form
from cadre.engine.calls.calls_in_text import Schema, schemas_of
from cadre.engine.draft import Draft
from cadre.engine.kind import Chat
from cadre.engine.model_choice import asked_model
from cadre.engine.model_request import ModelRequest
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.stepwise import Stepwise
from cadre.kinds.tool_calling.arguments import with_values
from cadre.kinds.tool_calling.request import ask_for_calls, shown_call, unreadable
from cadre.spec.agent import AgentSpec

_ARGUMENTS = re.compile(r"[\"'](?:arguments|args|parameters)[\"']\s*:|<(?:arg_key|parameter)\b")
"""Where a text holds the beginning of a call."""


def _any(name: str) -> Schema | None:
    """What any function may take, to see whether an answer is whole."""
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
