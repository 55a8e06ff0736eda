"""Reads the event stream of a run to its end, across lost connections."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Literal

import httpx2

from cadre.client.answer_texts import AnswerTexts
from cadre.client.errors import Unreachable
from cadre.client.event import Event
from cadre.client.transport import answer_of

View = Literal["events", "rows"]
"""What a stream has: the events of the journals, or what each entry has changed of the rows (`cadre.views.rows`)."""

_SILENCE_SECONDS = 45.0
"""Seconds without a byte (the gateway pings every 15) after which the connection counts as lost."""

_MAX_EVENT_BYTES = 64 * 1024 * 1024


class StreamResumption:
    """Remembers what has been read, so that reading on after a lost connection repeats nothing.

    Only the last event of a journal entry carries an id: an entry that was cut off is sent again whole,
    and its events that had arrived are known by their text.
    """

    def __init__(self) -> None:
        self.last_id = ""
        self._since_id: set[str] = set()

    def is_new(self, event: httpx2.ServerSentEvent) -> bool:
        """Whether the event has not been read before; takes note of it."""
        if event.event == "delta":
            return True
        # An entry's events differ at least in a call id or a type, so their text tells them apart.
        fresh = event.data not in self._since_id
        # The parser repeats the last id it saw; that of a new connection has seen none yet.
        if event.id and event.id != self.last_id:
            self.last_id = event.id
            self._since_id.clear()
        else:
            self._since_id.add(event.data)
        return fresh


class Backoff:
    """Waits longer and longer for a gateway that is away: `seconds` in all since the last reset."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        """Starts over: the gateway has answered."""
        self._pause, self._waited = 0.25, 0.0

    async def wait(self) -> bool:
        """Waits and returns True; returns False at once when it has waited long enough."""
        if self._waited >= self._seconds:
            return False
        await asyncio.sleep(self._pause)
        self._waited += self._pause
        self._pause = min(self._pause * 2, 5.0)
        return True


async def read_events(
    client: httpx2.AsyncClient, run: str, *, patience: float = 60.0, after: str = "", view: View = "events"
) -> AsyncGenerator[Event, None]:
    """Yields all events of the run's tree, or those after the event id `after`; the last one is `end`.

    The deltas of each model's answer are its whole text; in the view `rows` they are those that came. A lost
    connection is taken up again for `patience` seconds,
    anew each time. Raises ClientError: NotFound, Unreachable.
    """
    texts = AnswerTexts()
    resumption = StreamResumption()
    resumption.last_id = after
    backoff = Backoff(patience)
    while True:
        try:
            # Closed at once when the reader leaves: a connection is behind it.
            async with contextlib.aclosing(_read(client, run, resumption, view)) as reading:
                async for event in reading:
                    backoff.reset()
                    if event is None:
                        continue
                    for one in texts.complete(event) if view == "events" else (event,):
                        yield one
                    if event.type == "end":
                        return
            problem = "it closed the stream"
        except httpx2.TransportError as error:
            problem = type(error).__name__
        except Unreachable as failure:
            problem = failure.message
        if not await backoff.wait():
            raise Unreachable(
                f"lost the gateway ({problem}); the run goes on: `cadre show {run} --follow` looks again"
            )


async def _read(
    client: httpx2.AsyncClient, run: str, resumption: StreamResumption, view: View
) -> AsyncGenerator[Event | None, None]:
    """Yields the events of one connection, and None for each frame without news: the gateway is alive."""
    headers = {"Last-Event-ID": resumption.last_id} if resumption.last_id else {}
    timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=5)
    path = f"/v1/runs/{run}/events" + (f"?view={view}" if view != "events" else "")
    async with client.sse(path, headers=headers, timeout=timeout, max_event_size=_MAX_EVENT_BYTES) as source:
        if not source.response.is_success:
            await source.response.aread()
            answer_of(source.response)
        async for event in source:
            # A frame that only says `retry:` arrives as an event without data.
            new = event.data and resumption.is_new(event)
            yield Event(event.event, json.loads(event.data)) if new else None
