"""Serve AG-UI's clients: one address for each agent, which answers with events and the messages of the thread."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre_gateway.doors.agui.events import Json, ThreadEvents
from cadre_gateway.doors.agui.turns import RunInput, Turns
from cadre_gateway.doors.answer_json import run_headers
from cadre_gateway.doors.door_meter import count_request
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.doors.sender import RunService, sender_of
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, as_problem
from cadre_gateway.streaming.event_stream import EventStream

AGENT = "/agui/{agent}"
_PING = b": ping\n\n"
_MAX_HELD_BYTES = 256 * 1024
"""The largest request that is kept while its run goes on, to tell all messages anew where one is taken back."""

_OWN_AFFAIRS = ("reasoning", "activity")
"""Roles of messages that clients keep although a snapshot lacks them, as long as it has none of that role."""


def router(runs: RunService) -> APIRouter:
    """The routes of the door. AG-UI's own specification tells of them, so the gateway's leaves them out."""
    routes = APIRouter(include_in_schema=False)
    answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
    turns = Turns(runs, answers)

    @routes.post(AGENT, summary="A turn of a thread with an agent")
    async def post_turn(agent: str, request: Request) -> Response:
        try:
            data = await body.read(request)
            wanted = body.parse(data, RunInput)
            place = await turns.place_of(agent, wanted, sender_of(request))
        except FORESEEN as error:
            count_request(request, "agui", AGENT, as_problem(error))
            raise
        count_request(request, "agui", AGENT, None)
        events = ThreadEvents(wanted.thread_id, wanted.run_id, place)
        # A copy: the body itself takes of the memory that all requests share.
        kept = bytes(data) if len(data) <= _MAX_HELD_BYTES else None
        answer = EventStream(_frames(answers, place, events, kept))
        answer.headers.update(run_headers(place))
        return answer

    return routes


async def _frames(
    answers: Answers, place: Place, events: ThreadEvents, data: bytes | None
) -> AsyncGenerator[bytes]:
    """`data` is the request, without which nothing is told that may have to be taken back."""
    progress = Progress(place.run, place.after)
    try:
        for event in events.begin():
            yield _frame(event)
        async with contextlib.aclosing(answers.follow(progress, live=data is not None)) as follow:
            async for news in follow:
                for event in events.take(news.entry) if news.entry is not None else []:
                    yield _frame(event)
                for event in events.written(news.delta) if news.delta is not None else []:
                    yield _frame(event)
                if news.is_ping:
                    yield _PING
        for event in events.settle(progress):
            if event["type"] == "MESSAGES_SNAPSHOT" and data is not None:
                sent = msgspec.json.decode(data).get("messages", [])
                event["messages"] = [*await messages_told(answers, progress, sent), *event["messages"]]
            yield _frame(event)
    except FORESEEN as error:
        problem = as_problem(error)
        yield _frame({"type": "RUN_ERROR", "message": problem.detail, "code": problem.code})


def _frame(event: Json) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(event)


async def messages_told(answers: Answers, progress: Progress, sent: list[Json]) -> list[Json]:
    """Return the client's messages: those that it `sent`, and the calls since. Raise as `Answers.so_far` does."""
    place = Place(progress.run, progress.after)
    events, found = ThreadEvents("", "", place), _Messages(sent)
    async with answers.pages(place) as pages:
        async for page in pages:
            for stored in page:
                if stored.seq <= progress.seq:
                    found.take(events.take(stored))
    return found.all


class _Messages:
    def __init__(self, sent: list[Json]) -> None:
        self.all = [message for message in sent if message.get("role") not in _OWN_AFFAIRS]

    def take(self, events: list[Json]) -> None:
        """Makes of events what a client makes of them."""
        for event in events:
            who: dict[str, Any] = {key: event[key] for key in ("subagentRunId",) if key in event}
            match event["type"]:
                case "TOOL_CALL_START":
                    function = {"name": event["toolCallName"], "arguments": ""}
                    call = {"id": event["toolCallId"], "type": "function", "function": function}
                    self.all.append({"id": call["id"], "role": "assistant", "toolCalls": [call], **who})
                case "TOOL_CALL_ARGS":
                    self.all[-1]["toolCalls"][0]["function"]["arguments"] += event["delta"]
                case "TOOL_CALL_RESULT":
                    told = {key: event[key] for key in ("toolCallId", "role", "content")}
                    self.all.append({"id": event["messageId"], **told, **who})
                case _:
                    pass
