"""Puts a model's answer together from what the endpoint sends, whole or in pieces."""

from collections.abc import Callable
from typing import Any

import jiter
import msgspec

from cadre.adapters.models.answer_text import AnswerText, EndOf, joined
from cadre.adapters.models.kept_parts import KeptParts
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.events import RequestedCall
from cadre.ports import ModelReply, OnText
from cadre.protocol.usage import Usage
from cadre.spec.model import MAX_ANSWER_CHARS

FILTERED = "content_filter"
"""The finish_reason of an answer that the endpoint's content filter withheld or cut."""


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _PartialCall(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _ChatAnswer(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    """Some endpoints say here, instead of in the content, that they will not answer."""
    tool_calls: list[_PartialCall] | None = None
    annotations: Any = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _ChatAnswer | None = None
    message: _ChatAnswer | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


class _Piece(msgspec.Struct, frozen=True):
    """A chunk of a streamed completion, or a whole one."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None


class _OpenCall(msgspec.Struct):
    index: int | None
    id: str
    name: str = ""
    pieces: list[str] = []

    @property
    def arguments(self) -> str:
        """What has come of them: joined once, for they may come in a million pieces."""
        self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


class MalformedAnswer(Exception):
    """The endpoint sent something that is no chat completion; `is_foreign`: nothing of it looks like an answer."""

    def __init__(self, message: str, *, is_foreign: bool = False) -> None:
        super().__init__(message)
        self.is_foreign = is_foreign


class ModelAnswer:
    """Collects the pieces of one answer; passes its text on, cut where it ends."""

    def __init__(
        self,
        stop: list[str],
        on_text: OnText,
        clock: Callable[[], float],
        max_chars: int = MAX_ANSWER_CHARS,
        end_of: EndOf | None = None,
    ) -> None:
        self._max_chars = max_chars
        self._on_text = on_text
        self._text = AnswerText(stop, on_text, clock, end_of)
        self._chars = 0
        self._calls: list[_OpenCall] = []
        self._answer_passed = ""
        """What was passed on of the argument of `final_answer`."""
        self._usage = Usage()  # who asks counts the calls
        self._cached = self._reasoned = 0
        self._annotations: list[Any] = []
        self._kept = KeptParts()
        self._model = ""
        self._finish = ""
        self._empty = True

    async def add(self, data: object) -> None:
        """Takes a chunk, or a whole completion. Raises MalformedAnswer."""
        try:
            piece = msgspec.convert(data, _Piece, from_attributes=True)
        except msgspec.ValidationError as error:
            raise MalformedAnswer(str(error)) from error
        self._model = piece.model or self._model
        if piece.usage is not None:
            used = piece.usage
            self._usage = Usage(used.prompt_tokens or 0, used.completion_tokens or 0)
            self._cached = _detail(used.prompt_tokens_details, "cached_tokens")
            self._reasoned = _detail(used.completion_tokens_details, "reasoning_tokens")
        for choice in (piece.choices or [])[:1]:
            self._empty = False
            self._finish = choice.finish_reason or self._finish
            message = choice.delta or choice.message or _ChatAnswer()
            self._kept.add(_message_in(data))
            self._text.add(self._counted(message.content or message.refusal or ""))
            self._annotations += message.annotations if isinstance(message.annotations, list) else []
            for call in message.tool_calls or []:
                self._add_call(call, whole=choice.delta is None)
        if self._text.is_due:
            await self._text.pass_on()
            await self._pass_answer()

    @property
    def characters(self) -> int:
        """How long it is so far, calls included."""
        return self._chars + self._kept.characters

    def cut(self) -> None:
        """Ends it here, as an endpoint does at its limit of tokens."""
        self._finish = "length"

    @property
    def is_over(self) -> bool:
        """Whether its text goes on behind what was asked for: no more of it is wanted."""
        return self._text.is_over and not self._calls

    @property
    def begun(self) -> bool:
        """Whether some of it has come."""
        return not self._empty

    async def done(self) -> ModelReply:
        """Returns the answer, once everything was added. Raises MalformedAnswer when it is not complete."""
        if self._empty:
            raise MalformedAnswer("it holds no choice", is_foreign=True)
        text = await self._text.finish()
        finish = "stop" if self.is_over and self._finish in ("", "length") else self._finish
        if not finish:
            raise MalformedAnswer("it ends without a finish_reason: it broke off in the middle")
        if nameless := [call for call in self._calls if not call.name]:
            raise MalformedAnswer(f"{len(nameless)} of its tool calls have no name")
        return ModelReply(
            content=text,
            calls=[RequestedCall(call.name, joined(call.arguments)) for call in self._calls],
            usage=self._usage,
            model=self._model,
            finish_reason=finish,
            items=self._kept.items(len(self._calls), _plain(self._annotations)),
            cached_tokens=self._cached,
            reasoning_tokens=self._reasoned,
        )

    def _add_call(self, delta: _PartialCall, *, whole: bool) -> None:
        call = self._new_call(delta) if whole else self._open_call(delta)
        function = delta.function or _Function()
        # A name comes once; servers that repeat it in each piece mean the same name.
        call.name = call.name or function.name or ""
        if isinstance(function.arguments, dict):
            call.pieces = [msgspec.json.encode(function.arguments).decode()]
        else:
            call.pieces.append(self._counted(function.arguments or ""))

    def _counted(self, piece: str) -> str:
        self._chars += len(piece)
        if self._chars > self._max_chars:
            raise MalformedAnswer(
                f"it has over {self._max_chars:,} characters; model.chars sets how many it may have"
            )
        return piece

    def _open_call(self, delta: _PartialCall) -> _OpenCall:
        """Finds the call that a piece belongs to. Some servers leave the index out, or give each call index 0, or no
        id."""
        same = [c for c in self._calls if delta.index is None or c.index == delta.index]
        call = same[-1] if same else None
        if call is None or (delta.id and call.id and delta.id != call.id) or _begins_another(delta, call):
            return self._new_call(delta)
        return call

    def _new_call(self, delta: _PartialCall) -> _OpenCall:
        call = _OpenCall(delta.index, delta.id or "")
        self._calls.append(call)
        return call

    async def _pass_answer(self) -> None:
        """Passes on what has come of the one call of `final_answer`, whose arguments are whole at the end only."""
        if len(self._calls) != 1 or self._calls[0].name != FINAL_ANSWER:
            return
        text = _answer_in(self._calls[0].arguments)
        if len(text) > len(self._answer_passed) and text.startswith(self._answer_passed):
            piece, self._answer_passed = text[len(self._answer_passed) :], text
            self._text.mark()
            await self._on_text(piece, of_answer=True)


def _answer_in(arguments: str) -> str:
    """The beginning of the argument `answer` in the beginning of a call's arguments; "" where it is none or no text."""
    try:
        read = jiter.from_json(
            arguments.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore").encode(),
            partial_mode="trailing-strings",
        )
    except ValueError:
        return ""
    text = read.get("answer") if isinstance(read, dict) else None
    return text if isinstance(text, str) else ""


def _begins_another(delta: _PartialCall, call: _OpenCall) -> bool:
    """Whether a piece names a function and has arguments, where those of the call before it are whole already."""
    function = delta.function
    if function is None or not function.name or not function.arguments or not call.arguments:
        return False
    try:
        msgspec.json.decode(call.arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _message_in(data: object) -> dict[str, Any]:
    """The first choice's message as the endpoint sent it."""
    choices = data.get("choices") if isinstance(data, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    said = choice.get("delta") or choice.get("message")
    return said if isinstance(said, dict) else {}


def _detail(details: Any, name: str) -> int:
    """A count within the details of the usage, which endpoints write as they like."""
    found = details.get(name) if isinstance(details, dict) else getattr(details, name, None)
    return found if isinstance(found, int) else 0


def _plain(values: list[Any]) -> list[Any]:
    return [value.to_dict() if hasattr(value, "to_dict") else value for value in values]
