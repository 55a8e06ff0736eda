"""A response as the events of its stream. They follow from the journal alone: whichever gateway tells them, and however
often, each event has the same number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cadre.protocol.messages import Task
from cadre_gateway.doors.openai.response_id import response_id
from cadre_gateway.doors.openai.response_object import Json, response_object, settled_items, status_of
from cadre_gateway.doors.progress import Place, Progress

_MAX_DELTA_CHARS = 4_000

_LAST = {"completed": "response.completed", "incomplete": "response.incomplete"}


class NumberedEvents:
    """Makes the events of one response."""

    def __init__(self, progress: Progress, task: Task) -> None:
        self._progress, self._task = progress, task
        self.number = -1
        """Of the last event."""
        self.output: list[Json] = []
        self._told = ""
        """What the team has done so far: the text of the reasoning item."""

    def begin(self) -> Iterator[Json]:
        """The events before anything has happened."""
        yield self._lifecycle("response.created", "in_progress")
        yield self._lifecycle("response.in_progress", "in_progress")

    def doings(self, lines: list[str]) -> Iterator[Json]:
        """What an entry of a journal tells, as a summary of reasoning."""
        for line in lines:
            if not self._told:
                yield self._event(
                    "response.output_item.added", output_index=0, item=self._reasoning([], False)
                )
                yield self._summary("response.reasoning_summary_part.added", part=_part(""))
            self._told += f"{line}\n"
            yield self._summary("response.reasoning_summary_text.delta", delta=f"{line}\n")

    def settle(self) -> Iterator[Json]:
        """The events at the end: of a settled run."""
        if self._told:
            yield self._summary("response.reasoning_summary_text.done", text=self._told)
            yield self._summary("response.reasoning_summary_part.done", part=_part(self._told))
            item = self._reasoning([_part(self._told)], True)
            yield from self._done(item)
        for item in settled_items(self._progress):
            yield from self._item(item)
        status = status_of(self._progress)
        yield self._lifecycle(_LAST.get(status, "response.failed"), status)

    def error(self, problem: dict[str, Any]) -> Json:
        """A problem with the stream itself. It has the number of the event before: who comes back misses none."""
        return {"type": "error", "sequence_number": max(self.number, 0), **problem}

    def now(self) -> Json:
        """The response as it is at this moment."""
        output = self.output
        if not output and self._told:
            output = [self._reasoning([_part(self._told)], False)]
        return response_object(self._progress, self._task, output, status_of(self._progress))

    def _item(self, item: Json) -> Iterator[Json]:
        index = len(self.output)
        match item["type"]:
            case "message":
                empty = {**item, "status": "in_progress", "content": []}
                yield self._event("response.output_item.added", output_index=index, item=empty)
                yield from self._text(index, item)
            case "function_call":
                empty = {**item, "status": "in_progress", "arguments": ""}
                where = {"output_index": index, "item_id": item["id"]}
                yield self._event("response.output_item.added", output_index=index, item=empty)
                arguments = item["arguments"]
                yield self._event("response.function_call_arguments.delta", **where, delta=arguments)
                whole = {"arguments": arguments, "name": item["name"]}
                yield self._event("response.function_call_arguments.done", **where, **whole)
            case _:
                yield self._event("response.output_item.added", output_index=index, item=item)
        yield from self._done(item)

    def _text(self, index: int, item: Json) -> Iterator[Json]:
        part = item["content"][0]
        where = {"output_index": index, "item_id": item["id"], "content_index": 0}
        text = part["text"]
        yield self._event("response.content_part.added", **where, part={**part, "text": ""})
        for begin in range(0, len(text), _MAX_DELTA_CHARS):
            delta = text[begin : begin + _MAX_DELTA_CHARS]
            yield self._event("response.output_text.delta", **where, delta=delta, logprobs=[])
        yield self._event("response.output_text.done", **where, text=text, logprobs=[])
        yield self._event("response.content_part.done", **where, part=part)

    def _done(self, item: Json) -> Iterator[Json]:
        self.output.append(item)
        yield self._event("response.output_item.done", output_index=len(self.output) - 1, item=item)

    def _reasoning(self, summary: list[Json], is_done: bool) -> Json:
        place = Place(self._progress.run, self._progress.after)
        status = "completed" if is_done else "in_progress"
        return {
            "type": "reasoning",
            "id": f"rs_{response_id(place)[5:]}",
            "summary": summary,
            "status": status,
        }

    def _summary(self, name: str, **more: Any) -> Json:
        place = Place(self._progress.run, self._progress.after)
        where = {"item_id": f"rs_{response_id(place)[5:]}", "output_index": 0, "summary_index": 0}
        return self._event(name, **where, **more)

    def _lifecycle(self, name: str, status: str) -> Json:
        output = self.output if status != "in_progress" else []
        return self._event(name, response=response_object(self._progress, self._task, output, status))

    def _event(self, name: str, /, **fields: Any) -> Json:
        self.number += 1
        return {"type": name, "sequence_number": self.number, **fields}


def _part(text: str) -> Json:
    return {"type": "summary_text", "text": text}
