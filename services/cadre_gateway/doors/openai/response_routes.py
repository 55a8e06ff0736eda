"""/v1/responses: turns answered by runs, which any gateway tells from their journals, now or later."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.registry import NatsRegistry
from cadre.protocol.messages import Task
from cadre_gateway.access.principal import caller_of
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.doors.answer_json import json_answer, run_headers
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.openai import conversation
from cadre_gateway.doors.openai.conversation import Conversations
from cadre_gateway.doors.openai.errors import error_of
from cadre_gateway.doors.openai.response_events import NumberedEvents, Told, told_at, unrun_response
from cadre_gateway.doors.openai.response_object import (
    Json,
    ResponseBody,
    input_items,
    place_of_response,
    response_id,
    response_turn,
    status_of,
)
from cadre_gateway.doors.openai.turn_request import Envelope, envelope_of
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, answer_deadline, as_problem
from cadre_gateway.steering.erase import Eraser
from cadre_gateway.steering.run_end import RunEnd
from cadre_gateway.streaming.event_stream import EventStream

_PING = b": ping\n\n"
_HANG_UP = "its caller hung up"
_CANCEL_SECONDS = 10.0


@dataclass(frozen=True)
class Responses:
    """Makes responses and tells of them. Every method raises Problem, RetryableError."""

    conversations: Conversations
    answers: Answers
    reach: CallerReach
    history: History
    run_end: RunEnd
    eraser: Eraser
    registry: NatsRegistry

    async def create(self, request: Request) -> Response:
        """The response to a turn: whole, its events, or at once when it goes on in the background."""
        data = await body.read(request)
        wanted = body.parse(data, ResponseBody)
        user = wanted.user or wanted.safety_identifier
        envelope = envelope_of(request, data, user, wanted.metadata or {})
        turn = response_turn(wanted, envelope, card_of(self.registry.reachable(), wanted.model))
        if not turn.results and not turn.words and (text := conversation.answer_of(turn.text)) is not None:
            events = unrun_response(wanted.model, text, self.conversations.runs.clock.now())
            return EventStream(_told(events)) if wanted.stream else json_answer(_whole(events))
        place = await self.conversations.place_of(turn)
        if wanted.stream:
            answer: Response = EventStream(await self.events(place, Told(), cancels=envelope.cancels))
        elif wanted.background:
            answer = json_answer(await self.now(place))
        else:
            answer = json_answer(await self._wait(request, place, envelope))
        answer.headers.update(run_headers(place))
        return answer

    async def now(self, place: Place) -> Json:
        """The response as it is at this moment."""
        task = await self._task(place)
        progress = Progress(place.run, place.after)
        events = NumberedEvents(progress, task)
        async with self.answers.pages(place) as pages:
            async for page in pages:
                for stored in page:
                    if not progress.is_settled:
                        _all(events.doings(progress.take(stored)))
        if progress.is_settled:
            _all(events.settle())
        return events.now()

    async def events(self, place: Place, told: Told, *, cancels: bool = False) -> AsyncGenerator[bytes]:
        """Frames of the response's events that its reader has not been told, to its end."""
        progress = Progress(place.run, place.after)
        return self._frames(
            NumberedEvents(progress, await self._task(place), told), progress, cancels=cancels
        )

    async def cancel(self, place: Place) -> Json:
        """Ends the run of the response; one that has ended is left alone."""
        if status_of(await self.answers.so_far(place)) in ("queued", "in_progress"):
            await self.run_end.cancel(place.run, "cancelled as a response")
            await self.run_end.wait(place.run, _CANCEL_SECONDS)
        return await self.now(place)

    async def delete(self, place: Place) -> Json:
        """Erases the run of the response, and all its responses."""
        await self.eraser.erase(place.run, force=True)
        return {"id": response_id(place), "object": "response", "deleted": True}

    async def items(self, place: Place) -> list[Json]:
        """The input items of the response, the last one first."""
        return input_items(await self.answers.so_far(place), await self._task(place))

    async def named(self, given: str, request: Request) -> Place:
        """Return the place at which the response with this id begins. Raise a 404 problem for an id that was never
        given out, or whose run the caller does not reach."""
        place = place_of_response(given)
        await self.reach.check(caller_of(request), "tree", place.run)
        await self.answers.check(place)
        return place

    async def _task(self, place: Place) -> Task:
        async with answer_deadline():
            await self.answers.lookup.find(place.run)
            task = await self.history.task(place.run, place.run)
        if task is None:
            raise Problem(404, "unknown-run", f"there is no response {response_id(place)!r} (any more)")
        return task

    async def _wait(self, request: Request, place: Place, envelope: Envelope) -> Json:
        progress = Progress(place.run, place.after)
        events = NumberedEvents(progress, await self._task(place))
        async with contextlib.aclosing(self.answers.follow(progress)) as follow:
            async for news in follow:
                _all(events.doings(news.lines))
                if news.entry is None and await request.is_disconnected():
                    if envelope.cancels:
                        await self.run_end.cancel(place.run, _HANG_UP)
                    raise Problem(499, "request-cancelled", _HANG_UP)
        return _whole(events)

    async def _frames(
        self, events: NumberedEvents, progress: Progress, *, cancels: bool
    ) -> AsyncGenerator[bytes]:
        has_ended = False
        try:
            for event in events.begin():
                yield _frame(event)
            async with contextlib.aclosing(self.answers.follow(progress, live=True)) as follow:
                async for news in follow:
                    for event in events.doings(news.lines):
                        yield _frame(event)
                    if news.delta is not None:
                        for event in events.written(news.delta):
                            yield _frame(event)
                    if news.is_ping:
                        yield _PING
            has_ended = True
            for event in events.settle():
                yield _frame(event)
        except FORESEEN as error:
            has_ended = True
            yield _frame(events.error(error_of(as_problem(error))))
        finally:
            if cancels and not has_ended:
                await self.run_end.give_up(progress.run, _HANG_UP)


def add_routes(routes: APIRouter, responses: Responses) -> None:
    """Adds the routes of responses."""

    @routes.post("/responses", summary="A turn, answered by a run")
    async def post_response(request: Request) -> Response:
        return await responses.create(request)

    @routes.get("/responses/{response}", summary="A response, or its events from any one on")
    async def get_response(  # noqa: PLR0913 - as the protocol names them
        response: str,
        request: Request,
        stream: bool = False,
        starting_after: Annotated[int, Query(ge=-1)] = -1,
        include_obfuscation: bool | None = None,
        include: Annotated[list[str] | None, Query()] = None,
        includes: Annotated[list[str] | None, Query(alias="include[]")] = None,
    ) -> Response:
        place = await responses.named(response, request)
        if stream:
            return EventStream(await responses.events(place, told_at(starting_after)))
        return json_answer(await responses.now(place))

    @routes.post("/responses/{response}/cancel", summary="End the run of a response")
    async def post_cancel(response: str, request: Request) -> Response:
        return json_answer(await responses.cancel(await responses.named(response, request)))

    @routes.delete("/responses/{response}", summary="Erase the run of a response")
    async def delete_response(response: str, request: Request) -> Response:
        return json_answer(await responses.delete(await responses.named(response, request)))

    @routes.get("/responses/{response}/input_items", summary="What was said with a response")
    async def get_items(  # noqa: PLR0913 - as the protocol names them
        response: str,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: str = "desc",
        after: str | None = None,
        include: Annotated[list[str] | None, Query()] = None,
        includes: Annotated[list[str] | None, Query(alias="include[]")] = None,
    ) -> Response:
        items = await responses.items(await responses.named(response, request))
        items = items if order == "desc" else items[::-1]
        ids = [item["id"] for item in items]
        begin = ids.index(after) + 1 if after in ids else 0
        page = items[begin : begin + limit]
        ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        more = {"has_more": begin + limit < len(items)}
        return json_answer({"object": "list", "data": page, **ends, **more})


def _all(events: Iterable[Json]) -> None:
    """Makes the events, which nobody is told."""
    for _ in events:
        pass


def _whole(events: NumberedEvents) -> Json:
    """The response of a settled run."""
    _all(events.settle())
    return events.now()


async def _told(events: NumberedEvents) -> AsyncGenerator[bytes]:
    """The frames of a settled run's response."""
    for event in (*events.begin(), *events.settle()):
        yield _frame(event)


def _frame(event: Json) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), data)
