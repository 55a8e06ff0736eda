"""Answers that an endpoint cut at the limit of tokens, in the middle of what they ask for."""

from __future__ import annotations

import msgspec

from cadre.journal.arrivals import ModelReplied
from cadre.kinds.code.parse import closed, read_code
from cadre.kinds.tool_calling.parse import UNREADABLE, ReadingError, read_calls
from cadre.protocol.messages import ErrorInfo
from cadre.spec.agent import AgentSpec

_TOLD = (
    "Your answer was cut off at the limit of tokens before it was whole, so nothing of it was done."
    " Write less at once."
)


def cut_off(spec: AgentSpec, reply: ModelReplied) -> ErrorInfo | None:
    """What the model is told of it; None for an answer that is whole, or whole in what it asks for."""
    if reply.finish_reason != "length" or _is_whole(spec, reply):
        return None
    return ErrorInfo("AgentParsingError", _TOLD)


def _is_whole(spec: AgentSpec, reply: ModelReplied) -> bool:
    try:
        if spec.kind == "code":
            # What is missing would be put there for a block that only lacks its end.
            is_open = not spec.code.structured and closed(reply.content, spec.code) != reply.content
            return not is_open and bool(read_code(reply.content, spec.code))
        if reply.calls and isinstance(arguments := reply.calls[-1].arguments, str):
            msgspec.json.decode(arguments)
        return bool(read_calls(reply.content, reply.calls))
    except (ReadingError, *UNREADABLE):
        return False
