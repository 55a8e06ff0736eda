"""Serve /v1/responses: turns answered by runs, now or later, whole or as the numbered events of a stream. Any
gateway reads an answer from the journals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.registry import NatsRegistry
from cadre.journal.events import RunFinished
from cadre.protocol.deltas import Delta
from cadre.protocol.messages import Task
from cadre_gateway.access.principal import caller_of
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.doors.answers import json_answer, run_headers
from cadre_gateway.doors.following import Answers, LiveText
from cadre_gateway.doors.openai import conversation
from cadre_gateway.doors.openai.conversation import Conversations
from cadre_gateway.doors.openai.kept_conversations import is_kept
from cadre_gateway.doors.openai.response_object import (
    Json,
    ResponseBody,
    answer_changed,
    conversation_of,
    extra_items,
    input_items,
    message_item,
    most_tokens_of,
    page_of,
    place_of_response,
    response_id,
    response_object,
    response_turn,
    settled_items,
    status_of,
)
from cadre_gateway.doors.openai.turn_request import Envelope, Turn, envelope_of, holder_of
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, answer_deadline, as_problem, error_of
from cadre_gateway.steering.run_end import Eraser, RunEnd
from cadre_gateway.streaming.event_stream import EventStream

_PING = b": ping\n\n"
_DONE = b"data: [DONE]\n\n"
_HANG_UP = "its caller hung up"
_CANCEL_SECONDS = 10.0


@dataclass(frozen=True)
class Responses:
    """Makes and reports responses. Every method raises Problem, RetryableError."""

    conversations: Conversations
    answers: Answers
    reach: CallerReach
    history: History
    run_end: RunEnd
    eraser: Eraser
    registry: NatsRegistry

    async def create(self, request: Request) -> Response:
        """Return the response to a turn: whole, its events, or at once when it goes on in the background."""
        data = await body.read(request)
        wanted = body.parse(data, ResponseBody)
        user = wanted.user or wanted.safety_identifier
        envelope = envelope_of(request, data, user, wanted.metadata or {})
        turn = response_turn(wanted, envelope, card_of(self.registry.reachable(), wanted.model))
        if not turn.results and not turn.words and (text := conversation.answer_of(turn.text)) is not None:
            events = unrun_response(wanted.model, text, self.conversations.runs.clock.now())
            return EventStream(_told(events)) if wanted.stream else json_answer(_whole(events))
        turn = await self._in_conversation(request, wanted, turn)
        place = await self.conversations.place_of(turn)
        if wanted.stream:
            answer: Response = EventStream(await self.events(place, Told(), cancels=envelope.cancels))
        elif wanted.background:
            answer = json_answer(await self.now(place))
        else:
            answer = json_answer(await self._wait(request, place, envelope))
        answer.headers.update(run_headers(place))
        return answer

    async def _in_conversation(self, request: Request, wanted: ResponseBody, turn: Turn) -> Turn:
        """Return the turn with the files and the conversation that it names. Raise a 404 problem for unknown ones."""
        holder, named = holder_of(request), conversation_of(wanted)
        async with answer_deadline():
            if named and is_kept(named):
                extra = [] if turn.results or turn.words else extra_items(wanted)
                turn = await self.conversations.kept.turn_in(holder, turn, named, extra)
            return await self.conversations.kept.files.bring(holder, turn)

    async def now(self, place: Place) -> Json:
        """Return the response as it is at this moment."""
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
        """Yield frames of the response's events that its reader has not received, to its end."""
        progress = Progress(place.run, place.after)
        return self._frames(NumberedEvents(progress, await self._task(place), told), progress, cancels=cancels)

    async def cancel(self, place: Place) -> Json:
        """End the run of the response; one that has ended is left alone."""
        if status_of(await self.answers.so_far(place)) in ("queued", "in_progress"):
            await self.run_end.cancel(place.run, "cancelled as a response")
            await self.run_end.wait(place.run, _CANCEL_SECONDS)
        return await self.now(place)

    async def delete(self, place: Place) -> Json:
        """Erase the run of the response, and all its responses."""
        await self.eraser.erase(place.run, force=True)
        return {"id": response_id(place), "object": "response", "deleted": True}

    async def items(self, place: Place) -> list[Json]:
        """Return the input items of the response, the last one first."""
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

    async def _frames(self, events: NumberedEvents, progress: Progress, *, cancels: bool) -> AsyncGenerator[bytes]:
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
            yield _DONE
        except FORESEEN as error:
            has_ended = True
            yield _frame(events.error(error_of(as_problem(error))))
        finally:
            if cancels and not has_ended:
                await self.run_end.give_up(progress.run, _HANG_UP)


def add_routes(routes: APIRouter, responses: Responses) -> None:
    """Add the routes of responses."""

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
        return json_answer(page_of(items[::-1], limit, order, after))


def _all(events: Iterable[Json]) -> None:
    """Make the events without sending them."""
    for _ in events:
        pass


def _whole(events: NumberedEvents) -> Json:
    """Return the response of a settled run."""
    _all(events.settle())
    return events.now()


async def _told(events: NumberedEvents) -> AsyncGenerator[bytes]:
    """Yield the frames of a settled run's response."""
    for event in (*events.begin(), *events.settle()):
        yield _frame(event)
    yield _DONE


def _frame(event: Json) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), data)


_MAX_DELTA_CHARS = 4_000

_LAST = {"completed": "response.completed", "incomplete": "response.incomplete"}

_STEP = 100_000
"""From one event of the journal to the next. Some clients read numbers of 32 bits: 21,474 events have room there."""

MAX_LIVE = _STEP - 1

_OPENING = 2
"""Events that open the message before its first characters."""

MAX_LIVE_CHARS = MAX_LIVE - _OPENING
"""Of an answer longer than that the rest comes with its end."""


class Told(NamedTuple):
    """The part of a response that a reader has: its number grows with each event."""

    events: int = -1
    """The place of the last event that follows from the journal, from 0."""
    live: int = 0
    """The number of events sent while the model wrote: one for each event that opened the message, and for each
    character."""

    @property
    def number(self) -> int:
        """As `sequence_number`."""
        return max(self.events, 0) * _STEP + self.live

    @property
    def chars(self) -> int:
        """Return how much of the answer's text was sent live."""
        return max(self.live - _OPENING, 0)


def told_at(number: int) -> Told:
    """Return what a reader has seen that gives this number as its last one; a negative one stands for nothing."""
    return Told(*divmod(number, _STEP)) if number >= 0 else Told()


class NumberedEvents:
    """Makes the events of one response that its reader has not received yet."""

    def __init__(self, progress: Progress, task: Task, told: Told = Told()) -> None:  # noqa: B008 - a value
        """`told` is the reader's position after earlier streams."""
        self._progress, self._task, self._before = progress, task, told
        self._place = Place(progress.run, progress.after)
        self._told = Told(live=told.live)
        self.output: list[Json] = []
        self._doings = ""
        """The team's work so far: the text of the reasoning item."""
        self._live = LiveText(self._place)

    def begin(self) -> Iterator[Json]:
        """Yield the events before anything has happened."""
        yield from self._lifecycle("response.created", "in_progress")
        yield from self._lifecycle("response.in_progress", "in_progress")

    def doings(self, lines: list[str]) -> Iterator[Json]:
        """Yield an entry of a journal as a summary of reasoning."""
        for line in lines:
            if not self._doings:
                item = self._reasoning([], False)
                yield from self._event("response.output_item.added", output_index=0, item=item)
                yield from self._summary("response.reasoning_summary_part.added", part=_part(""))
            self._doings += f"{line}\n"
            yield from self._summary("response.reasoning_summary_text.delta", delta=f"{line}\n")

    def written(self, delta: Delta) -> Iterator[Json]:
        """Yield the model's new text of the answer, once the reasoning is open: the message comes behind it. A reader
        with text of an earlier stream waits for the whole answer, because that text is not known here.
        """
        self._live.take(delta)
        if not self._doings or self._before.live or self._told.events < self._before.events:
            return
        if more := self._live.more(MAX_LIVE_CHARS, most_tokens_of(self._task)):
            item = message_item(self._place, "", "in_progress")
            if not self._told.live:
                empty = {**item, "content": []}
                yield self._live_event("response.output_item.added", 1, output_index=1, item=empty)
                opened = {**_where(1, item), "part": item["content"][0]}
                yield self._live_event("response.content_part.added", 1, **opened)
            about = {**_where(1, item), "delta": more, "logprobs": []}
            yield self._live_event("response.output_text.delta", len(more), **about)

    def settle(self) -> Iterator[Json]:
        """Yield the events at the end of a settled run. Raises Problem if text that was sent live is not part of the
        answer."""
        if self._doings:
            yield from self._summary("response.reasoning_summary_text.done", text=self._doings)
            yield from self._summary("response.reasoning_summary_part.done", part=_part(self._doings))
            item = self._reasoning([_part(self._doings)], True)
            yield from self._done(item)
        items = settled_items(self._progress)
        for item in self._behind_live(items) if self._told.live else items:
            yield from self._item(item)
        status = status_of(self._progress)
        yield from self._lifecycle(_LAST.get(status, "response.failed"), status)

    def error(self, problem: Json) -> Json:
        """Return a problem with the stream itself, in the words of both specifications. It has the number of the event
        before: a client that reconnects misses none."""
        number = max(self._told, self._before).number
        return {**problem, "type": "error", "sequence_number": number, "error": problem}

    def now(self) -> Json:
        """Return the response as it is at this moment."""
        output = self.output
        if not output and self._doings:
            output = [self._reasoning([_part(self._doings)], False)]
        return response_object(self._progress, self._task, output, status_of(self._progress))

    def _behind_live(self, items: list[Json]) -> list[Json]:
        """Yield the items at the end for a reader who received text live. Raises a 500 problem if another stream sent
        that text, perhaps of another attempt."""
        progress, was_elsewhere = self._progress, self._before.live > 0
        if progress.pause is not None:
            if was_elsewhere:
                raise answer_changed(self._place)
            # The text sent was not an answer: the model has made calls as well.
            return [message_item(self._place, self._live.told, "completed"), *items]
        if was_elsewhere and items:
            is_opened = self._before.events > self._told.events  # by a stream that knew what it had sent
            if progress.answers_written > 1 and not is_opened:
                raise answer_changed(self._place)
            self._live.told = items[0]["content"][0]["text"][: self._before.chars]
        return items

    def _item(self, item: Json) -> Iterator[Json]:
        index = len(self.output)
        match item["type"]:
            case "message":
                empty = {**item, "status": "in_progress", "content": []}
                added: Json = {"output_index": index, "item": empty}
                yield from self._event("response.output_item.added", is_told=self._told.live > 0, **added)
                yield from self._text(index, item)
            case "function_call":
                empty = {**item, "status": "in_progress", "arguments": ""}
                where = {"output_index": index, "item_id": item["id"]}
                yield from self._event("response.output_item.added", output_index=index, item=empty)
                arguments = item["arguments"]
                yield from self._event("response.function_call_arguments.delta", **where, delta=arguments)
                whole = {"arguments": arguments, "name": item["name"]}
                yield from self._event("response.function_call_arguments.done", **where, **whole)
            case _:
                yield from self._event("response.output_item.added", output_index=index, item=item)
        yield from self._done(item)

    def _text(self, index: int, item: Json) -> Iterator[Json]:
        part, where = item["content"][0], _where(index, item)
        text = part["text"]
        opened: Json = {**where, "part": {**part, "text": ""}}
        yield from self._event("response.content_part.added", is_told=self._told.live > 1, **opened)
        rest = self._live.rest(text)
        if rest is None:
            raise answer_changed(self._place)
        told = len(text) - len(rest)
        for begin in range(0, len(text), _MAX_DELTA_CHARS):
            more = text[max(begin, told) : begin + _MAX_DELTA_CHARS]
            about: Json = {**where, "delta": more, "logprobs": []}
            yield from self._event("response.output_text.delta", is_told=not more, **about)
        yield from self._event("response.output_text.done", **where, text=text, logprobs=[])
        yield from self._event("response.content_part.done", **where, part=part)

    def _done(self, item: Json) -> Iterator[Json]:
        self.output.append(item)
        yield from self._event("response.output_item.done", output_index=len(self.output) - 1, item=item)

    def _reasoning(self, summary: list[Json], is_done: bool) -> Json:
        return {
            "type": "reasoning",
            "id": f"rs_{response_id(self._place)[5:]}",
            "summary": summary,
            "status": "completed" if is_done else "in_progress",
        }

    def _summary(self, name: str, **more: Any) -> Iterator[Json]:
        where: Json = {"item_id": f"rs_{response_id(self._place)[5:]}", "output_index": 0, "summary_index": 0}
        return self._event(name, **where, **more)

    def _lifecycle(self, name: str, status: str) -> Iterator[Json]:
        output = self.output if status != "in_progress" else []
        return self._event(name, response=response_object(self._progress, self._task, output, status))

    def _event(self, name: str, /, *, is_told: bool = False, **fields: Any) -> Iterator[Json]:
        """Yield the next event that follows from the journal, unless the reader has it."""
        self._told = self._told._replace(events=self._told.events + 1)
        if self._told.events > self._before.events and not is_told:
            yield {"type": name, "sequence_number": self._told.number, **fields}

    def _live_event(self, name: str, weight: int, /, **fields: Any) -> Json:
        self._told = self._told._replace(live=self._told.live + weight)
        return {"type": name, "sequence_number": self._told.number, **fields}


def unrun_response(agent: str, text: str, at: float) -> NumberedEvents:
    """Return the events of a response that no run has given: its id cannot be looked up."""
    run = f"task-{int(at)}"
    progress = Progress(run)
    progress.task = Task(id=f"{run}:task", tree=run, run=run, at=at, agent=agent, task="")
    progress.at, progress.end = at, RunFinished(state="success", output=text)
    return NumberedEvents(progress, progress.task)


def _where(index: int, item: Json) -> Json:
    return {"output_index": index, "item_id": item["id"], "content_index": 0}


def _part(text: str) -> Json:
    return {"type": "summary_text", "text": text}
