"""Serve POST /v1/chat/completions: read a turn of a chat, run the agent, answer whole or in chunks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.adapters.nats.registry import NatsRegistry
from cadre.protocol.cards import AgentCard
from cadre.protocol.deltas import Delta
from cadre.spec.names import FINAL_ANSWER
from cadre_gateway.doors.answers import json_answer, run_headers
from cadre_gateway.doors.callers_tools import schema_of, terms_of, wants_final_call
from cadre_gateway.doors.following import Answers, LiveText, check_success
from cadre_gateway.doors.messages import MessageContent, ToldHistory
from cadre_gateway.doors.openai import conversation
from cadre_gateway.doors.openai.conversation import Conversations
from cadre_gateway.doors.openai.response_object import answer_changed
from cadre_gateway.doors.openai.turn_request import (
    Envelope,
    MaxTokens,
    Turn,
    content_of,
    envelope_of,
    holder_of,
)
from cadre_gateway.doors.progress import (
    Pause,
    PendingAnswer,
    Place,
    Progress,
    Tokens,
    answer_text,
    within_tokens,
)
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, answer_deadline, as_problem, error_of, invalid
from cadre_gateway.steering.run_end import RunEnd
from cadre_gateway.streaming.event_stream import EventStream

_HANG_UP = "its caller hung up"

_RULES = ("system", "developer")

MAX_DELTA_CHARS = 4_000
_MAX_ARGUMENTS_CHARS = 2_000

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


@dataclass(frozen=True)
class ChatCompletions:
    """Answers turns of chats."""

    conversations: Conversations
    answers: Answers
    run_end: RunEnd
    registry: NatsRegistry

    async def complete(self, request: Request) -> Response:
        """Return the completion, or its chunks. Raises Problem, RetryableError."""
        data = await body.read(request)
        wanted = body.parse(data, ChatBody)
        created = int(self.conversations.runs.clock.now())
        envelope = envelope_of(request, data, wanted.user, wanted.metadata or {})
        turn = chat_turn(wanted, envelope, card_of(self.registry.reachable(), wanted.model))
        if not turn.results and (text := conversation.answer_of(turn.text)) is not None:
            usage = wanted.stream_options is not None and bool(wanted.stream_options.include_usage)
            stream = bool(wanted.stream)
            return _unrun(plain_answer(wanted.model, text, created, stream=stream, with_usage=usage))
        async with answer_deadline():
            turn = await self.conversations.kept.files.bring(holder_of(request), turn)
        place = await self.conversations.place_of(turn)
        progress = Progress(place.run, place.after)
        base_url, as_call = str(request.base_url).rstrip("/"), wants_final_call(wanted.tools or [])
        stop = [wanted.stop] if isinstance(wanted.stop, str) else wanted.stop or []
        answer = ChatAnswer(
            progress, wanted.model, created, base_url, as_call=as_call, stop=stop, tokens=wanted.most_tokens
        )
        if wanted.stream:
            usage = wanted.stream_options is not None and bool(wanted.stream_options.include_usage)
            chunks = self._chunks(progress, answer, cancels=envelope.cancels, with_usage=usage)
            response: Response = EventStream(chunks)
        else:
            response = await self._whole(request, progress, answer, cancels=envelope.cancels)
        response.headers.update(run_headers(place))
        return response

    async def _whole(self, request: Request, progress: Progress, answer: ChatAnswer, *, cancels: bool) -> Response:
        doings: list[str] = []
        async with contextlib.aclosing(self.answers.follow(progress)) as follow:
            async for news in follow:
                doings += [f"{line}\n" for line in news.lines]
                if news.entry is None and await request.is_disconnected():
                    if cancels:
                        await self.run_end.cancel(progress.run, _HANG_UP)
                    raise Problem(499, "request-cancelled", _HANG_UP)
        return json_answer(answer.whole(doings))

    async def _chunks(
        self, progress: Progress, answer: ChatAnswer, *, cancels: bool, with_usage: bool
    ) -> AsyncGenerator[bytes]:
        has_ended = False
        try:
            yield answer.first_chunk()
            async with contextlib.aclosing(self.answers.follow(progress, live=True)) as follow:
                async for news in follow:
                    for line in news.lines:
                        yield answer.doing_chunk(f"{line}\n")
                    if news.delta is not None:
                        for chunk in answer.live_chunks(news.delta):
                            yield chunk
                    if news.is_ping:
                        yield PING
            has_ended = True
            for chunk in answer.last_chunks(with_usage=with_usage):
                yield chunk
        except FORESEEN as error:
            has_ended = True
            yield error_chunk(as_problem(error))
        finally:
            if cancels and not has_ended:
                await self.run_end.give_up(progress.run, _HANG_UP)


def _unrun(answer: object) -> Response:
    if isinstance(answer, list):

        async def frames() -> AsyncGenerator[bytes]:
            for frame in answer:
                yield frame

        return EventStream(frames())
    return json_answer(answer)


def add_routes(routes: APIRouter, chat: ChatCompletions) -> None:
    """Add the routes of chats."""

    @routes.post("/chat/completions", summary="A turn of a chat with an agent")
    async def post_completion(request: Request) -> Response:
        return await chat.complete(request)


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message of the conversation."""

    role: str
    content: Any = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    """The options of a stream."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct, kw_only=True):
    """The body of POST /v1/chat/completions, as far as an agent has a use for it: the rest, such as `temperature`, is
    the agent's own."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_completion_tokens: MaxTokens | None = None
    max_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: list[dict[str, Any]] | None = None
    function_call: Any = None
    web_search_options: Any = None

    @property
    def most_tokens(self) -> int | None:
        """Return how many tokens the answer may have; None for any number."""
        return self.max_completion_tokens or self.max_tokens


def chat_turn(body: ChatBody, envelope: Envelope, card: AgentCard | None) -> Turn:
    """Return the turn that the body asks for. Raises a 422 problem that names what cannot be used."""
    if body.n not in (None, 1):
        raise invalid("an agent gives one answer: leave n out, or send several requests", field="n")
    _refuse_unsupported(body)
    messages = body.messages
    contents = [content_of(one.content, f"messages[{at}].content") for at, one in enumerate(messages)]
    asked = max((at for at, one in enumerate(messages) if one.role == "user"), default=-1)
    results = _results(messages, contents, asked + 1)
    if asked < 0 and not results:
        raise invalid("say what the agent shall do, in a message of the role user", field="messages")
    history, mark = _history(messages, contents, asked)
    now = contents[asked] if asked >= 0 else MessageContent()
    text = now.text.strip() or ("What is in this?" if now.images or now.files else "")
    if asked >= 0 and not text:
        raise invalid("the message is empty: say what the agent shall do", field=f"messages[{asked}].content")
    rules = [content.text for one, content in zip(messages, contents, strict=True) if one.role in _RULES]
    return Turn(
        agent=body.model,
        text=text,
        images=now.images,
        files=now.files,
        instructions="\n\n".join(rule for rule in rules if rule),
        history=history,
        mark=mark,
        results=results,
        session=envelope.session,
        user=envelope.user,
        by=envelope.by,
        caller=envelope.caller,
        terms=terms_of(body.tools or [], body.tool_choice, card),
        output_schema=schema_of(body.response_format, "response_format"),
        metadata=body.metadata or {},
        key=envelope.key,
        has_own_key=envelope.has_own_key,
        is_retry=envelope.is_retry,
        traceparent=envelope.traceparent,
    )


def _refuse_unsupported(body: ChatBody) -> None:
    """Raise a 422 problem for what would change the meaning of an answer and is not done here."""
    refused = {
        "logprobs": ("an answer has no log probabilities", bool(body.logprobs)),
        "top_logprobs": ("an answer has no log probabilities", bool(body.top_logprobs)),
        "modalities": ("an answer is text", set(body.modalities or ["text"]) != {"text"}),
        "audio": ("an answer is text", body.audio is not None),
        "functions": ("`tools` has taken their place", bool(body.functions)),
        "function_call": (
            "`tool_choice` has taken its place",
            body.function_call not in (None, "none", "auto"),
        ),
        "web_search_options": ("the agent has its own tools", body.web_search_options is not None),
    }
    for field, (why, is_asked) in refused.items():
        if is_asked:
            raise invalid(why, field=field)


def _history(messages: list[ChatMessage], contents: list[MessageContent], asked: int) -> tuple[ToldHistory, str]:
    """Return all messages but the one that is `asked`, and what stands for those up to that one."""
    history, mark = ToldHistory(), ""
    for at, (one, content) in enumerate(zip(messages, contents, strict=True)):
        if at == asked:
            mark = history.mark(one.role, content, name=one.name)
        elif one.role not in _RULES:
            history.add(
                one.role,
                content,
                name=one.name,
                calls=[_call(call) for call in one.tool_calls or []],
                call=one.tool_call_id,
                function=one.function_call,
                reasoning=one.reasoning_content,
                after_task=at > asked,
            )
    return history, mark


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call of a function as a run reads it."""
    function = call.get("function")
    about = function if isinstance(function, dict) else call.get("custom") or {}
    return {"id": call.get("id"), **about} if isinstance(about, dict) else {"id": call.get("id")}


def _results(messages: list[ChatMessage], contents: list[MessageContent], since: int) -> dict[str, str]:
    """Return the results of the caller's functions since the last message of a person."""
    found = {}
    for at, one in enumerate(messages[since:], since):
        if one.role == "tool":
            if not one.tool_call_id:
                raise invalid("whose result is it?", field=f"messages[{at}].tool_call_id")
            found[one.tool_call_id] = contents[at].text
    return found


class ChatAnswer:
    """The answer of a run in the form of a chat."""

    def __init__(  # noqa: PLR0913 - most by name
        self,
        progress: Progress,
        agent: str,
        created: int,
        base_url: str,
        *,
        as_call: bool = False,
        stop: Sequence[str] = (),
        tokens: int | None = None,
    ) -> None:
        """`base_url` is the gateway's URL for people; the answer is sent as text up to the first of `stop` and to so
        many `tokens`, or `as_call` of `final_answer`."""
        self._stop = [one for one in stop if one]
        self._tokens = tokens
        self._progress = progress
        mark = f"-{progress.after}" if progress.after else ""
        self._id = f"chatcmpl-{progress.run}{mark}"
        self._agent, self._created, self._base_url, self._as_call = agent, created, base_url, as_call
        self._place = Place(progress.run, progress.after)
        self._live = LiveText(self._place)

    def whole(self, doings: list[str]) -> dict[str, Any]:
        """Return the completion of a settled run. Raises Problem when the run failed."""
        content, calls, reason = self._settled()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if calls else ""),
            "refusal": None,
        }
        if doings:
            message["reasoning_content"] = "".join(doings)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(self._progress.tokens)}

    def first_chunk(self) -> bytes:
        """Return the chunk that begins the answer."""
        return self._chunk({"role": "assistant", "content": ""})

    def doing_chunk(self, line: str) -> bytes:
        """Return what the team does, which chat programs fold away as thoughts."""
        return self._chunk({"reasoning_content": line})

    def live_chunks(self, delta: Delta) -> Iterator[bytes]:
        """Yield what the model has written more of the answer."""
        self._live.take(delta)
        if not self._as_call and not self._stop and (more := self._live.more(tokens=self._tokens)):
            yield self._chunk({"content": more})

    def last_chunks(self, *, with_usage: bool) -> Iterator[bytes]:
        """Yield the rest of the answer of a settled run, and the end of the stream."""
        try:
            content, calls, reason = self._settled()
            content = self._behind_the_told(content)
        except Problem as problem:
            yield error_chunk(problem)
            return
        for begin in range(0, len(content), MAX_DELTA_CHARS):
            yield self._chunk({"content": content[begin : begin + MAX_DELTA_CHARS]})
        for index, call in enumerate(calls):
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, reason)
        if with_usage:
            yield _frame({**self._head("chat.completion.chunk"), "choices": [], "usage": usage(self._progress.tokens)})
        yield DONE

    def _behind_the_told(self, content: str) -> str:
        if self._progress.pause is None:
            rest = self._live.rest(content)
            if rest is None:
                raise answer_changed(self._place)
            return rest
        # The text sent was not an answer: the model has gone on to make calls.
        return f"\n\n{content}" if content and self._live.told else content

    def _settled(self) -> tuple[str, list[dict[str, Any]], str]:
        """Return the content, the calls of the caller's functions, and the finish reason."""
        progress = self._progress
        if (pause := progress.pause) is not None:
            calls = [_call_object(call, held) for call, held in pause.held.items() if held.is_callers]
            asked = {call: held for call, held in pause.held.items() if not held.is_callers}
            return self._question(pause, asked), calls, "tool_calls" if calls else "stop"
        check_success(progress)
        assert progress.end is not None
        if self._as_call:
            return (
                "",
                [_function(f"{progress.run}_final", FINAL_ANSWER, {"answer": progress.end.output})],
                "tool_calls",
            )
        text = answer_text(progress.end.output)
        text = text[: min((text.find(one) for one in self._stop if one in text), default=len(text))]
        sent = within_tokens(text, self._tokens)
        is_short = progress.end.state == "max_steps_error" or len(sent) < len(text)
        return sent, [], "length" if is_short else "stop"

    def _question(self, pause: Pause, asked: dict[str, PendingAnswer]) -> str:
        """Return what a person is asked, and how they may answer."""
        if not asked:
            return ""
        lines = [
            f"**{_what(held)}**\n{held.request.reason} (call `{call}`)".replace("\n ", " ")
            for call, held in asked.items()
        ]
        how = "Answer `approve`, or `reject` and why; any other text goes to the team."
        if all(held.request.name == "ask_user" for held in asked.values()):
            how = "Your next message is the answer."
        where = f"Or decide at {self._base_url}/#/approvals (run {self._progress.run})."
        return "\n\n".join(["Waiting for your word:", *lines, f"{how} {where}"])

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._agent}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _frame({**self._head("chat.completion.chunk"), "choices": [choice]})


def plain_answer(
    agent: str, text: str, created: int, *, stream: bool, with_usage: bool
) -> dict[str, Any] | list[bytes]:
    """Return an answer that no run has given: the completion, or its chunks."""
    head = {"id": f"chatcmpl-task-{created}", "created": created, "model": agent}
    if not stream:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage(Tokens())}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": text}, None),
        ({}, "stop"),
    ]
    chunks = [
        _frame(
            {
                **head,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}],
            }
        )
        for delta, reason in deltas
    ]
    if with_usage:
        last = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage(Tokens())}
        chunks.append(_frame(last))
    return [*chunks, DONE]


def error_chunk(problem: Problem) -> bytes:
    """Return the chunk by which a stream that has begun reports a problem; clients raise it."""
    return _frame({"error": error_of(problem)})


def usage(tokens: Tokens) -> dict[str, Any]:
    """Return what the models of the whole tree were sent and have written."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def _call_object(call: str, held: PendingAnswer) -> dict[str, Any]:
    return _function(call, held.request.name, held.request.arguments)


def _function(call: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    written = json.dumps(arguments, ensure_ascii=False)
    return {"id": call, "type": "function", "function": {"name": name, "arguments": written}}


def _what(held: PendingAnswer) -> str:
    request = held.request
    if request.name == "ask_user":
        return str(request.arguments.get("question", ""))
    arguments = json.dumps(request.arguments, ensure_ascii=False)
    short = arguments if len(arguments) <= _MAX_ARGUMENTS_CHARS else arguments[:_MAX_ARGUMENTS_CHARS] + "…"
    call = f"{request.name} {short}" if request.kind != "question" else request.name
    return f"{request.text}: {call}" if request.text else call


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
