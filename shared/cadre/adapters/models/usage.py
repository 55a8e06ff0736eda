"""Estimates the tokens of a call when its endpoint does not tell: so budgets still hold."""

from typing import Any

import msgspec

from cadre.engine.context.context_budget import IMAGE, MESSAGE
from cadre.engine.context.tokens import tokens_of
from cadre.engine.model_request import ModelRequest
from cadre.ports import ModelReply
from cadre.protocol.usage import Usage


def estimated(request: ModelRequest, reply: ModelReply) -> Usage:
    """Estimates the tokens of a request and its reply, rather too many than too few."""
    asked = sum(MESSAGE + _weight(message) for message in request.messages)
    asked += sum(_written(tool) for tool in request.tools)
    answered = tokens_of(reply.content) + sum(_written(call) for call in reply.calls)
    return Usage(asked, answered)


def _weight(message: dict[str, Any]) -> int:
    content = message.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    weight = sum(tokens_of(part["text"]) if part["type"] == "text" else IMAGE for part in parts)
    return weight + sum(_written(call) for call in message.get("tool_calls") or [])


def _written(value: Any) -> int:
    return tokens_of(msgspec.json.encode(value).decode())
