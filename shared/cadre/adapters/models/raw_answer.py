"""The whole answer to a program's own request, as its endpoint gave it: a chat completion or a response, put together
where it came as a stream."""

from typing import Any, Literal

import msgspec

from cadre.adapters.models.answer import ModelAnswer
from cadre.adapters.models.responses_answer import ResponsesAnswer
from cadre.ports import ModelReply, OnText


class RawAnswer:
    """Collects an answer as another collector does, and keeps what came besides.

    Args:
        answer: reads the answer for the run: its text, usage and calls.
        on_text: is given each piece of a stream as it comes.
    """

    def __init__(
        self, answer: ModelAnswer | ResponsesAnswer, api: Literal["chat", "responses"], on_text: OnText
    ) -> None:
        self._answer = answer
        self._on_text = on_text
        self._api = api
        self._whole: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._items: list[dict[str, Any]] = []
        self.cut, self.end, self.expect_thought = answer.cut, answer.end, answer.expect_thought

    @property
    def characters(self) -> int:
        """Return how long it is so far, calls included."""
        return self._answer.characters

    @property
    def finished(self) -> bool:
        """Return whether what ends it has come."""
        return self._answer.finished

    @property
    def first_at(self) -> float | None:
        """Return when, by the clock, the first piece of text, thought or call came."""
        return self._answer.first_at

    @property
    def begun(self) -> bool:
        """Return whether some of it has come."""
        return self._answer.begun

    @property
    def is_over(self) -> bool:
        """Return False: all that the endpoint sends is the program's."""
        return False

    async def add(self, sent: Any) -> None:
        """Take a piece of a stream, or a whole answer. Raises MalformedAnswer, FailedAnswer."""
        await self._answer.add(sent)
        if _is_chunk(sent):
            await self._on_text("", chunk=sent)
        if self._api == "responses":
            self._add_event(sent)
        else:
            self._add_chunk(sent)

    async def done(self) -> ModelReply:
        """Return the answer, once everything was added. Raises MalformedAnswer when it is not complete."""
        reply = await self._answer.done()
        whole = self._whole
        if self._api == "responses":
            whole = {**whole, "output": whole.get("output") or self._items}
        elif self._choices:
            whole = {**whole, "choices": [self._choices[place] for place in sorted(self._choices)]}
        return msgspec.structs.replace(reply, raw=whole, items=[])

    def _add_event(self, sent: dict[str, Any]) -> None:
        if sent.get("object") == "response":
            self._whole = sent
        elif sent.get("type") == "response.output_item.done":
            self._items.append(sent["item"])
        elif isinstance(sent.get("response"), dict):
            self._whole = sent["response"]

    def _add_chunk(self, sent: dict[str, Any]) -> None:
        choices = sent.get("choices")
        choices = choices if isinstance(choices, list) else []
        if any(isinstance(choice, dict) and "message" in choice for choice in choices):
            self._whole, self._choices = sent, {}
            return
        about = {key: value for key, value in sent.items() if key != "choices" and value is not None}
        self._whole = {**self._whole, **about, "object": "chat.completion"}
        for choice in choices:
            if isinstance(choice, dict):
                self._add_choice(choice)

    def _add_choice(self, choice: dict[str, Any]) -> None:
        index = choice.get("index") or 0
        empty = {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
        held = self._choices.setdefault(index, empty)
        for key, value in choice.items():
            if key == "delta":
                _merge(held["message"], value or {})
            elif key == "logprobs" and isinstance(value, dict):
                held[key] = held.get(key) or {}
                _merge(held[key], value)
            elif value is not None:
                held[key] = value


def _is_chunk(sent: dict[str, Any]) -> bool:
    """Return False for an answer that came whole."""
    choices = sent.get("choices")
    is_whole = isinstance(choices, list) and any("message" in one for one in choices if isinstance(one, dict))
    return not is_whole and sent.get("object") != "response"


_REPLACED = frozenset({"role", "id", "type", "index", "name"})
"""Texts of a delta that are no beginning of a longer one: some endpoints repeat them in each chunk."""


def _merge(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to what it continues: texts and lists grow, and the calls of a list go by their index."""
    for key, value in delta.items():
        known = whole.get(key)
        if value is None:
            continue
        if isinstance(value, str) and isinstance(known, str) and key not in _REPLACED:
            whole[key] = known + value
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif isinstance(value, list) and key == "tool_calls":
            whole[key] = known or []
            _merge_calls(whole[key], value)
        elif isinstance(value, list) and isinstance(known, list):
            whole[key] = [*known, *value]
        else:
            whole[key] = value


def _merge_calls(calls: list[dict[str, Any]], deltas: list[dict[str, Any]]) -> None:
    for delta in deltas:
        place = delta.get("index", len(calls))
        while len(calls) <= place:
            calls.append({"type": "function"})
        _merge(calls[place], {key: value for key, value in delta.items() if key != "index"})
