"""Puts an answer of the Responses API together, from a whole response or from the events of a stream."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from cadre.adapters.models.answer import FailedAnswer, MalformedAnswer, ModelAnswer
from cadre.adapters.models.answer_text import EndOf
from cadre.adapters.models.error_body import error_in
from cadre.ports import ModelReply, OnText

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponsesAnswer:
    """Collects one answer as `ModelAnswer` does, and the items that the endpoint gave in addition to its texts and
    calls."""

    def __init__(
        self,
        stop: list[str],
        on_text: OnText,
        clock: Callable[[], float],
        max_chars: int,
        end_of: EndOf | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._answer = ModelAnswer(stop, on_text, clock, max_chars, end_of, names)
        self._items: list[dict[str, Any]] = []
        self._texts = self._calls = 0
        self._heard: list[str] = []
        """The received pieces of the current text; joined once."""

    @property
    def characters(self) -> int:
        """Return how long it is so far, calls included."""
        return self._answer.characters

    def expect_thought(self) -> None:
        """Pass no text on before a thought that the chat template has opened is over."""
        self._answer.expect_thought()

    def cut(self) -> None:
        """End it here, as an endpoint does at its limit of tokens."""
        self._answer.cut()

    def end(self) -> None:
        """Take note of the end of the stream, which says nothing: the last event is the end of an answer."""

    @property
    def finished(self) -> bool:
        """Return whether its last event has come."""
        return self._answer.finished

    @property
    def is_over(self) -> bool:
        """Return whether its text goes on behind what was asked for: no more of it is wanted."""
        return self._answer.is_over

    @property
    def first_at(self) -> float | None:
        """Return when, by the clock, the first piece of text or call came."""
        return self._answer.first_at

    @property
    def begun(self) -> bool:
        """Return whether some of it has come."""
        return self._answer.begun or bool(self._items)

    async def add(self, sent: Any) -> None:
        """Take an event, or a whole response. Raises MalformedAnswer, FailedAnswer."""
        if (error := error_in(sent)) is not None:
            raise FailedAnswer(error)
        if not isinstance(sent, dict):
            raise MalformedAnswer("it holds no response", is_foreign=True)
        try:
            await self._take(sent)
        except (KeyError, TypeError, AttributeError) as error:
            raise MalformedAnswer(f"{type(error).__name__}: {error}") from error

    async def done(self) -> ModelReply:
        """Return the answer, once everything was added. Raises MalformedAnswer when it is not complete."""
        if not self.begun:
            raise MalformedAnswer("it holds no response", is_foreign=True)
        reply = await self._answer.done()
        return msgspec.structs.replace(reply, items=self._kept())

    async def _take(self, data: dict[str, Any]) -> None:
        kind = data.get("type")
        if kind in _TEXT:
            self._heard.append(data["delta"])
            await self._add(delta={"content": data["delta"]})
        elif kind == "response.output_item.done":
            await self._add_item(data["item"])
        elif kind in _ENDS:
            await self._end(data["response"])
        elif data.get("object") == "response":
            await self._end(data)

    async def _add_item(self, item: dict[str, Any]) -> None:
        kind = item["type"]
        if kind == "message":
            self._texts += 1
            text = "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
            heard = "".join(self._heard)
            if text.startswith(heard):
                await self._add(delta={"content": text[len(heard) :]})
            self._heard.clear()
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"index": self._calls, "id": item["call_id"], "function": function}
            await self._add(delta={"tool_calls": [call]})
            self._calls += 1
        self._items.append(item)

    async def _end(self, response: dict[str, Any]) -> None:
        if response.get("status") == "failed" or response.get("error"):
            raise FailedAnswer(response)
        if not self._items:
            for item in response.get("output") or ():
                await self._add_item(item)
        used = response.get("usage") or {}
        usage = {
            "prompt_tokens": used.get("input_tokens"),
            "completion_tokens": used.get("output_tokens"),
            "prompt_tokens_details": used.get("input_tokens_details"),
            "completion_tokens_details": used.get("output_tokens_details"),
        }
        choice: dict[str, Any] = {"delta": {}, "finish_reason": self._finish(response)}
        await self._answer.add(
            {"choices": [choice], "usage": usage, "model": response.get("model"), "id": response.get("id")}
        )

    def _finish(self, response: dict[str, Any]) -> str | None:
        match response.get("status"):
            case "completed":
                return "tool_calls" if self._calls else "stop"
            case "incomplete":
                reason = (response.get("incomplete_details") or {}).get("reason")
                return _REASONS.get(str(reason), "length")
        return None

    async def _add(self, **message: Any) -> None:
        await self._answer.add({"choices": [message]})

    def _kept(self) -> list[dict[str, Any]]:
        """Return the items in their order, without the texts and calls that the reply holds already; [] when nothing
        else is in them."""
        kept = [_without_call(item) if item["type"] == "function_call" else item for item in self._items]
        if self._texts == 1:
            kept = [_without_text(item) if item["type"] == "message" else item for item in kept]
        return kept if any(map(_says_more, kept)) else []


def _without_call(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("name", "arguments", "call_id")}


def _without_text(item: dict[str, Any]) -> dict[str, Any]:
    notes = [note for part in item["content"] for note in part.get("annotations") or ()]
    rest = {key: value for key, value in item.items() if key != "content"}
    return {**rest, **({"annotations": notes} if notes else {})}


def _says_more(item: dict[str, Any]) -> bool:
    if item["type"] not in ("message", "function_call"):
        return True
    return bool(item.get("annotations") or item.get("phase") or item.get("content"))
