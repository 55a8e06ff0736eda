"""The tokens of a call: as its endpoint lists them, or estimated where it does not, so that budgets still hold."""

import math
from typing import Any

import msgspec

from cadre.engine.context.context_budget import IMAGE, MESSAGE
from cadre.engine.context.text_size import tokens_of
from cadre.engine.model_request import ModelRequest
from cadre.ports import ModelReply
from cadre.protocol.usage import Usage

_MOST_TOKENS = 2**40
"""A larger count is a mistake."""


class SentUsage:
    """Collects the counts that an endpoint sends, whole, in each chunk or at the end.

    Of each count the largest one holds: endpoints that send some in each chunk add up, and zeros behind them say
    nothing.
    """

    def __init__(self) -> None:
        self._input = self._output = self._total = 0
        self.cached = self.reasoned = 0

    def add(self, data: dict[str, Any]) -> None:
        """Take what a chunk or a choice says of it; what is no count is passed over."""
        for holder in (data, data.get("x_groq")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                self._add(usage)

    @property
    def total(self) -> Usage:
        """Return the tokens that were read and written; the caller counts the calls."""
        # Some list the tokens of reasoning next to those of the answer, and count them in the sum alone.
        apart = self._total == self._input + self._output + self.reasoned
        return Usage(self._input, self._output + (self.reasoned if apart else 0))

    def _add(self, usage: dict[str, Any]) -> None:
        self._input = max(self._input, _count(usage, "prompt_tokens", "input_tokens"))
        self._output = max(self._output, _count(usage, "completion_tokens", "output_tokens"))
        self._total = max(self._total, _count(usage, "total_tokens"))
        read = _first_object(usage, "prompt_tokens_details", "input_tokens_details", "prompt_token_details")
        written = _first_object(usage, "completion_tokens_details", "output_tokens_details")
        names = ("cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens")
        self.cached = max(self.cached, _count(read, *names) or _count(usage, *names))
        self.reasoned = max(self.reasoned, _count(written, "reasoning_tokens"))


def _first_object(usage: dict[str, Any], *names: str) -> dict[str, Any]:
    return next((found for name in names if isinstance(found := usage.get(name), dict)), {})


def _count(usage: dict[str, Any], *names: str) -> int:
    """Return the first of these counts that is one; 0 where none is. Endpoints write numbers as they like."""
    for name in names:
        value = usage.get(name)
        try:
            number = float(value) if isinstance(value, int | float | str) else math.nan
        except (ValueError, OverflowError):
            continue
        if 0 < number < _MOST_TOKENS:
            return int(number)
    return 0


def estimated(request: ModelRequest, reply: ModelReply) -> Usage:
    """Estimate the tokens of a request and its reply, rather too many than too few."""
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
