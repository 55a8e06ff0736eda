"""Write a response as the numbered events of its stream.

All events except live pieces of text follow from the journal, so they have the same number at every gateway and in
every repetition. The number also counts the live pieces, so a client that reconnects sees no event twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cadre.journal.events import RunFinished
from cadre.protocol.deltas import Delta
from cadre.protocol.messages import Task
from cadre_gateway.doors.live_text import LiveText
from cadre_gateway.doors.openai.errors import answer_changed
from cadre_gateway.doors.openai.response_object import (
    Json,
    message_item,
    response_id,
    response_object,
    settled_items,
    status_of,
)
from cadre_gateway.doors.progress import Place, Progress

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
    """What was told while the model wrote: one for each event that opened the message, and for each character."""

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
    """Makes the events of one response that its reader has not been told yet."""

    def __init__(self, progress: Progress, task: Task, told: Told = Told()) -> None:  # noqa: B008 - a value
        """`told` is what the reader has from earlier streams."""
        self._progress, self._task, self._before = progress, task, told
        self._place = Place(progress.run, progress.after)
        self._told = Told(live=told.live)
        self.output: list[Json] = []
        self._doings = ""
        """What the team has done so far: the text of the reasoning item."""
        self._live = LiveText(self._place)

    def begin(self) -> Iterator[Json]:
        """The events before anything has happened."""
        yield from self._lifecycle("response.created", "in_progress")
        yield from self._lifecycle("response.in_progress", "in_progress")

    def doings(self, lines: list[str]) -> Iterator[Json]:
        """What an entry of a journal tells, as a summary of reasoning."""
        for line in lines:
            if not self._doings:
                item = self._reasoning([], False)
                yield from self._event("response.output_item.added", output_index=0, item=item)
                yield from self._summary("response.reasoning_summary_part.added", part=_part(""))
            self._doings += f"{line}\n"
            yield from self._summary("response.reasoning_summary_text.delta", delta=f"{line}\n")

    def written(self, delta: Delta) -> Iterator[Json]:
        """What the model has written more of the answer, once the reasoning is open: the message comes behind it. A
        reader who has text of an earlier stream waits for the whole, for nobody here knows what it was."""
        self._live.take(delta)
        if not self._doings or self._before.live or self._told.events < self._before.events:
            return
        if more := self._live.more(MAX_LIVE_CHARS):
            item = message_item(self._place, "", "in_progress")
            if not self._told.live:
                empty = {**item, "content": []}
                yield self._live_event("response.output_item.added", 1, output_index=1, item=empty)
                opened = {**_where(1, item), "part": item["content"][0]}
                yield self._live_event("response.content_part.added", 1, **opened)
            about = {**_where(1, item), "delta": more, "logprobs": []}
            yield self._live_event("response.output_text.delta", len(more), **about)

    def settle(self) -> Iterator[Json]:
        """The events at the end: of a settled run. Raises Problem if text that was told live is no part of it."""
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
        """A problem with the stream itself, in the words of both specifications. It has the number of the event before:
        who comes back misses none."""
        number = max(self._told, self._before).number
        return {**problem, "type": "error", "sequence_number": number, "error": problem}

    def now(self) -> Json:
        """The response as it is at this moment."""
        output = self.output
        if not output and self._doings:
            output = [self._reasoning([_part(self._doings)], False)]
        return response_object(self._progress, self._task, output, status_of(self._progress))

    def _behind_live(self, items: list[Json]) -> list[Json]:
        """The items at the end for a reader who was told text live. Raises a 500 problem where that was told by another
        stream, and may have been of another attempt."""
        progress, was_elsewhere = self._progress, self._before.live > 0
        if progress.pause is not None:
            if was_elsewhere:
                raise answer_changed(self._place)
            # What was told was no answer: the model has made calls beside it.
            return [message_item(self._place, self._live.told, "completed"), *items]
        if was_elsewhere and items:
            is_opened = self._before.events > self._told.events  # by a stream that knew what it had told
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
        """The next event that follows from the journal, unless the reader has it."""
        self._told = self._told._replace(events=self._told.events + 1)
        if self._told.events > self._before.events and not is_told:
            yield {"type": name, "sequence_number": self._told.number, **fields}

    def _live_event(self, name: str, weight: int, /, **fields: Any) -> Json:
        self._told = self._told._replace(live=self._told.live + weight)
        return {"type": name, "sequence_number": self._told.number, **fields}


def unrun_response(agent: str, text: str, at: float) -> NumberedEvents:
    """The events of a response that no run has given: nobody will find it by its id."""
    run = f"task-{int(at)}"
    progress = Progress(run)
    progress.task = Task(id=f"{run}:task", tree=run, run=run, at=at, agent=agent, task="")
    progress.at, progress.end = at, RunFinished(state="success", output=text)
    return NumberedEvents(progress, progress.task)


def _where(index: int, item: Json) -> Json:
    return {"output_index": index, "item_id": item["id"], "content_index": 0}


def _part(text: str) -> Json:
    return {"type": "summary_text", "text": text}
