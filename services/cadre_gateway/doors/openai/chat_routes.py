"""POST /v1/chat/completions: a turn of a chat with an agent, answered by a run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from cadre.adapters.nats.registry import NatsRegistry
from cadre_gateway.doors.answer_json import json_answer, run_headers
from cadre_gateway.doors.callers_tools import wants_final_call
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.openai import hidden_tasks
from cadre_gateway.doors.openai.chat_answer import PING, ChatAnswer, error_chunk, plain_answer
from cadre_gateway.doors.openai.chat_request import ChatBody, chat_turn
from cadre_gateway.doors.openai.conversation import Conversations
from cadre_gateway.doors.openai.turn_request import envelope_of
from cadre_gateway.doors.progress import Progress
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem
from cadre_gateway.steering.run_end import RunEnd
from cadre_gateway.streaming.event_stream import EventStream

_HANG_UP = "its caller hung up"


@dataclass(frozen=True)
class ChatCompletions:
    """Answers turns of chats."""

    conversations: Conversations
    answers: Answers
    run_end: RunEnd
    registry: NatsRegistry

    async def complete(self, request: Request) -> Response:
        """The completion, or its chunks. Raises Problem, RetryableError."""
        data = await body.read(request)
        wanted = body.parse(data, ChatBody)
        created = int(self.conversations.runs.clock.now())
        envelope = envelope_of(request, data, wanted.user, wanted.metadata or {})
        turn = chat_turn(wanted, envelope, card_of(self.registry.reachable(), wanted.model))
        if not turn.results and (text := hidden_tasks.answer_of(turn.text)) is not None:
            return _unrun(plain_answer(wanted.model, text, created, stream=bool(wanted.stream)))
        place = await self.conversations.place_of(turn)
        progress = Progress(place.run, place.after)
        base_url, as_call = str(request.base_url).rstrip("/"), wants_final_call(wanted.tools or [])
        answer = ChatAnswer(progress, wanted.model, created, base_url, as_call=as_call)
        if wanted.stream:
            usage = wanted.stream_options is not None and bool(wanted.stream_options.include_usage)
            chunks = self._chunks(progress, answer, cancels=envelope.cancels, with_usage=usage)
            response: Response = EventStream(chunks)
        else:
            response = await self._whole(request, progress, answer, cancels=envelope.cancels)
        response.headers.update(run_headers(place))
        return response

    async def _whole(
        self, request: Request, progress: Progress, answer: ChatAnswer, *, cancels: bool
    ) -> Response:
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

        async def frames() -> AsyncIterator[bytes]:
            for frame in answer:
                yield frame

        return StreamingResponse(frames(), media_type="text/event-stream")
    return json_answer(answer)


def add_routes(routes: APIRouter, chat: ChatCompletions) -> None:
    """Adds the routes of chats."""

    @routes.post("/chat/completions", summary="A turn of a chat with an agent")
    async def post_completion(request: Request) -> Response:
        return await chat.complete(request)
