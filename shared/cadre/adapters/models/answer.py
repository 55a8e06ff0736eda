"""Puts a model's answer together from what the endpoint sends, whole or in pieces: field by field, so that what can be
used of an odd answer is used."""

from collections.abc import Callable, Collection
from typing import Any

import jiter

from cadre.adapters.models.answer_text import AnswerText, EndOf, joined
from cadre.adapters.models.call_assembly import AssembledCall, CallAssembly, as_json, read_piece
from cadre.adapters.models.error_body import error_in
from cadre.adapters.models.failure import ending_of
from cadre.adapters.models.usage import SentUsage
from cadre.journal.events import RequestedCall
from cadre.ports import ModelReply, OnText
from cadre.protocol.messages import ErrorInfo
from cadre.spec.model import MAX_ANSWER_CHARS
from cadre.spec.names import FINAL_ANSWER

_MOST_CALLS = 1000
"""Of one answer: more are an endpoint's mistake."""

_MOST_ID = 128
"""Characters of an answer's id that are kept."""

_MOST_BLANKS = 64
"""White space behind a whole JSON value after which nothing else is waited for: held to a grammar, some models write
blanks up to the limit of tokens."""

_NAMELESS = (
    "This call was not made: it came without a name, or glued to the call before it."
    " Make each call on its own, with the name of a tool and its arguments as one JSON object."
)


class MalformedAnswer(Exception):
    """The endpoint sent something that is no chat completion; `is_foreign`: nothing of it looks like an answer."""

    def __init__(self, message: str, *, is_foreign: bool = False) -> None:
        super().__init__(message)
        self.is_foreign = is_foreign


class FailedAnswer(Exception):
    """The endpoint says within its answer that it failed.

    Attributes:
        error: what it sent, as `cadre.adapters.models.error_body` reads it.
    """

    def __init__(self, error: Any) -> None:
        super().__init__("the endpoint reports an error in its answer")
        self.error = error


class ModelAnswer:
    """Collects the pieces of one answer; passes its text on, cut where it ends.

    Args:
        names: the functions on offer.
    """

    def __init__(
        self,
        stop: list[str],
        on_text: OnText,
        clock: Callable[[], float],
        max_chars: int = MAX_ANSWER_CHARS,
        end_of: EndOf | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._max_chars = max_chars
        self._on_text = on_text
        self._text = AnswerText(stop, on_text, clock, end_of)
        self._names = names
        self._chars = 0
        self._calls: dict[int, CallAssembly] = {}
        """By the index of the choice that they are in."""
        self._first: int | None = None
        """The index of the choice that the text is taken from."""
        self._others: list[str] = []
        """The text of the other choices."""
        self._answer_passed = ""
        """The part of the argument of `final_answer` that was passed on."""
        self._usage = SentUsage()
        self._annotations: list[Any] = []
        self._kept = KeptParts()
        self._model = self._id = ""
        self._clock = clock
        self.first_at: float | None = None
        """The clock's time at the first piece of text, thought or call."""
        self._finish = ""
        self._blanks, self._check_at, self._blank_end = 0, _MOST_BLANKS, False
        self._ended = False

    async def add(self, data: object) -> None:
        """Take a chunk, or a whole completion, as plain JSON. Raises MalformedAnswer, FailedAnswer."""
        if (error := error_in(data)) is not None:
            raise FailedAnswer(error)
        if isinstance(data, list) and data and all(isinstance(one, dict) for one in data):
            # A gateway that knows no streams sends the chunks as one array.
            for one in data:
                await self.add(one)
            return
        if not isinstance(data, dict):
            raise MalformedAnswer("it holds no choice", is_foreign=True)
        data = _completion(data)
        self._model = data["model"] if isinstance(data.get("model"), str) and data["model"] else self._model
        self._id = data["id"] if isinstance(data.get("id"), str) and data["id"] else self._id
        self._usage.add(data)
        for place, choice in enumerate(_objects(data.get("choices"))):
            self._usage.add(choice)
            self._add_choice(place, choice)
        if self.first_at is None and (self.characters or self._calls):
            self.first_at = self._clock()
        if self._blanks >= self._check_at:
            self._check_at *= 2
            self._blank_end = await self._is_whole_json()
        if self._text.is_due:
            await self._text.pass_on()
            await self._pass_answer()

    @property
    def characters(self) -> int:
        """Return how long it is so far, calls included."""
        return self._chars + self._kept.characters

    def expect_thought(self) -> None:
        """Pass no text on before a thought that the chat template has opened is over."""
        self._text.is_opened = True

    def cut(self) -> None:
        """End it here, as an endpoint does at its limit of tokens."""
        self._finish = "length"

    def end(self) -> None:
        """Take it as whole, though no finish_reason has come: the endpoint has marked the end in another way."""
        self._ended = True

    @property
    def is_over(self) -> bool:
        """Return whether it goes on behind what was asked for, in words or in blanks: no more of it is wanted."""
        return self._blank_end or (self._text.is_over and not self._calls)

    @property
    def begun(self) -> bool:
        """Return whether some of it has come."""
        return self._first is not None

    @property
    def finished(self) -> bool:
        """Return whether its finish_reason has come."""
        return bool(self._finish)

    async def done(self) -> ModelReply:
        """Return the answer, once everything was added. Raises MalformedAnswer when it is not complete."""
        if self._first is None:
            raise MalformedAnswer("it holds no choice", is_foreign=True)
        for piece in self._others if self._text.is_empty else ():
            self._text.add(piece)
        text = await self._text.finish()
        calls = self._assembled()
        finish = "stop" if self.is_over and self._finish in ("", "length") else self._finish
        if not finish and not (self._ended and (calls or text)):
            raise MalformedAnswer("it ends without a finish_reason: it broke off in the middle")
        return ModelReply(
            content=text,
            calls=[_requested(call) for call in calls],
            usage=self._usage.total,
            model=self._model,
            response=self._id[:_MOST_ID],
            finish_reason=finish or ("tool_calls" if calls else "stop"),
            items=self._kept.items(calls, self._annotations),
            cached_tokens=self._usage.cached,
            reasoning_tokens=self._usage.reasoned,
        )

    def _add_choice(self, place: int, choice: dict[str, Any]) -> None:
        delta, message = (_said(choice.get(key)) for key in ("delta", "message"))
        is_whole = delta is None and message is not None
        said = next((one for one in (delta, message, _said(choice.get("text"))) if one is not None), {})
        index = choice.get("index")
        # Some endpoints number all choices of a whole answer alike.
        place = index if isinstance(index, int) and not is_whole else place
        self._first = place if self._first is None else self._first
        self._finish = _finish_of(choice) or _finish_of(said) or self._finish
        self._ended = self._ended or is_whole
        self._add_text(place, _text_in(said.get("content")) or _text_in(said.get("refusal")), is_whole=is_whole)
        self._kept.add(said)
        if self._kept.characters:
            # The endpoint takes thoughts out of the text itself.
            self._text.is_opened = False
        notes = said.get("annotations")
        self._annotations += notes if isinstance(notes, list) else []
        sent = _objects(said.get("tool_calls")) or _objects(said.get("function_call"))
        sent = sent or [part for part in _objects(said.get("content")) if part.get("type") == "tool_use"]
        pieces = [piece for one in sent if (piece := read_piece(one)) is not None]
        for piece in pieces:
            self._counted(piece.arguments)
        if pieces:
            calls = self._calls.setdefault(place, CallAssembly(self._names))
            if is_whole:
                calls.add_whole(pieces)
            else:
                for piece in pieces:
                    calls.add(piece)
            if len(calls) > _MOST_CALLS:
                raise MalformedAnswer(f"it holds over {_MOST_CALLS:,} calls")

    def _add_text(self, place: int, text: str, *, is_whole: bool) -> None:
        if place != self._first:
            self._others.append(self._counted(text))
            return
        if is_whole:
            # Behind a stream, a whole message repeats what has come.
            text = self._text.behind(text)
        self._text.add(self._counted(text))

    def _assembled(self) -> list[AssembledCall]:
        """Return the calls of the first choice that holds any."""
        found = (self._calls[place].done() for place in sorted(self._calls))
        return next((calls for calls in found if calls), [])

    async def _is_whole_json(self) -> bool:
        """Return whether its calls, or else its text, are JSON to the end."""
        texts = [call.arguments for call in self._assembled()] or [await self._text.finish()]
        try:
            for text in texts:
                jiter.from_json(joined(text).encode())
        except ValueError:
            return False
        return True

    def _counted(self, piece: str) -> str:
        if piece:
            self._blanks = self._blanks + len(piece) if piece.isspace() else 0
        self._chars += len(piece)
        if self._chars > self._max_chars:
            raise MalformedAnswer(f"it has over {self._max_chars:,} characters; model.chars sets how many it may have")
        return piece

    def _only_call(self) -> tuple[str, str]:
        """Return the name and the arguments, so far, of the answer's one call."""
        only = next(iter(self._calls.values())).only if len(self._calls) == 1 else None
        return only or ("", "")

    async def _pass_answer(self) -> None:
        """Pass on what has come of the one call of `final_answer`, whose arguments are whole at the end only."""
        name, arguments = self._only_call()
        if name != FINAL_ANSWER:
            return
        text = _answer_in(arguments)
        if len(text) > len(self._answer_passed) and text.startswith(self._answer_passed):
            piece, self._answer_passed = text[len(self._answer_passed) :], text
            self._text.mark()
            await self._on_text(piece, of_answer=True)


def _answer_in(arguments: str) -> str:
    """Return the beginning of the argument `answer` in a call's incomplete arguments; "" if it is missing or no
    text."""
    try:
        read = jiter.from_json(
            arguments.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore").encode(),
            partial_mode="trailing-strings",
        )
    except ValueError:
        return ""
    text = read.get("answer") if isinstance(read, dict) else None
    return text if isinstance(text, str) else ""


def _requested(call: AssembledCall) -> RequestedCall:
    error = None if call.name else ErrorInfo("invalid-call", f"{_NAMELESS} It came with: {call.arguments[:200]}")
    return RequestedCall(call.name, joined(call.arguments), error)


def _finish_of(choice: dict[str, Any]) -> str:
    """Return the finish_reason; that of the model behind a relay where it alone says that something went wrong."""
    reasons = [choice.get("finish_reason", choice.get("finishReason")), choice.get("native_finish_reason")]
    shown, native = (reason if isinstance(reason, str) else "" for reason in reasons)
    return native if ending_of(native) in ("failed", "too_long", "unread_call") else shown


def _completion(data: dict[str, Any]) -> dict[str, Any]:
    """Return the completion, which some gateways wrap into an object of their own."""
    if "choices" in data:
        return data
    inner = (value for value in data.values() if isinstance(value, dict) and "choices" in value)
    return next(inner, data)


def _said(value: Any) -> dict[str, Any] | None:
    """Return a message, which some relays send as its text alone; None for anything else."""
    return {"content": value} if isinstance(value, str) else value if isinstance(value, dict) else None


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, of an object that has them by number, or the one that stands in their place."""
    if isinstance(value, dict) and value and all(str(key).isdecimal() for key in value):
        value = [{"index": key, **one} for key, one in value.items() if isinstance(one, dict)]
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, dict)]


def _text_in(content: Any) -> str:
    """Return the text of a message's content: a text, a list of parts, or the JSON that stands in its place.

    Thoughts, pictures and references among the parts are no text.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and content.get("type") in ("text", "output_text"):
        content = [content]
    if isinstance(content, list):
        return "".join(map(_text_of_part, content))
    return as_json(content)


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type", "text") not in ("text", "output_text", "refusal"):
        return ""
    text = part.get("text", part.get("refusal"))
    if isinstance(text, dict):
        text = text.get("value")
    return text if isinstance(text, str) else ""


_TEXTS = ("reasoning_content", "reasoning", "reasoning_text")
_GROWING = ("text", "summary", "data", "signature", "thinking")
"""Fields of an entry of `reasoning_details` or `thinking_blocks` that come in pieces."""


class KeptParts:
    """Collects them from the pieces of one answer."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._blocks: list[dict[str, Any]] = []
        self._thinking: list[str] = []
        self._thought: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}
        self.characters = 0

    def add(self, message: dict[str, Any]) -> None:
        """Take the message of a whole answer, or the delta of a piece of one."""
        for name in _TEXTS:
            if isinstance(text := message.get(name), str) and text:
                self._texts.setdefault(name, []).append(self._counted(text))
        for entry in _entries(message.get("reasoning_details")):
            self._add_detail(entry)
        for block in _entries(message.get("thinking_blocks")):
            self._add_block(block)
        for part in _entries(message.get("content")):
            if part.get("type") == "thinking":
                self._add_thinking(part)
        if isinstance(extra := message.get("extra_content"), dict):
            self._extra |= extra

    def items(self, calls: list[AssembledCall], annotations: list[Any]) -> list[dict[str, Any]]:
        """Return the items of an answer with these calls; [] where nothing is to be kept."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        # Some endpoints send the same text under several names.
        fields: dict[str, Any] = {}
        for name, text in texts.items():
            if text not in fields.values():
                fields[name] = text
        if self._blocks:
            fields = {"thinking_blocks": self._blocks}
        if self._details:
            fields = {"reasoning_details": self._details}
        if self._thinking or self._thought:
            said = [{"type": "text", "text": "".join(self._thinking)}]
            fields["thinking"] = {**self._thought, "type": "thinking", "thinking": said}
        if self._extra:
            fields["extra_content"] = self._extra
        if annotations:
            fields["annotations"] = annotations
        items = [{"type": "message", **fields}] if fields else []
        if self._details or any(call.extra for call in calls):
            items += map(_item, calls)
        return items

    def _add_detail(self, entry: dict[str, Any]) -> None:
        self.characters += sum(len(value) for key in _GROWING if isinstance(value := entry.get(key), str))
        last = self._details[-1] if self._details else None
        same = last is not None and all(last.get(key) == entry.get(key) for key in ("type", "index"))
        other = last is not None and last.get("id") and entry.get("id") and last["id"] != entry["id"]
        if last is None or not same or other or "index" not in entry:
            self._details.append(dict(entry))
            return
        for key, value in entry.items():
            if key in _GROWING and isinstance(value, str) and isinstance(last.get(key), str):
                last[key] += value
            elif value is not None:
                last[key] = value

    def _add_block(self, block: dict[str, Any]) -> None:
        """Take a block of Claude's thoughts, or a piece of one: its signature ends it."""
        self.characters += sum(len(value) for key in _GROWING if isinstance(value := block.get(key), str))
        last = self._blocks[-1] if self._blocks else {}
        goes_on = last.get("type") == block.get("type") == "thinking" and not last.get("signature")
        if not goes_on:
            self._blocks.append(dict(block))
            return
        for key in ("thinking", "signature"):
            if isinstance(value := block.get(key), str) and value:
                last[key] = (last.get(key) or "") + value

    def _add_thinking(self, part: dict[str, Any]) -> None:
        said = part.get("thinking")
        texts = [said] if isinstance(said, str) else [one.get("text") for one in _entries(said)]
        self._thinking += [self._counted(text) for text in texts if isinstance(text, str)]
        self._thought |= {key: value for key, value in part.items() if key != "thinking"}

    def _counted(self, text: str) -> str:
        self.characters += len(text)
        return text


def _item(call: AssembledCall) -> dict[str, Any]:
    return {"type": "function_call", **({"id": call.id} if call.id else {}), **call.extra}


def _entries(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
