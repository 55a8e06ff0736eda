"""The events of runs: read from the stream across lost connections, typed, their texts put together, followed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import httpx2
import msgspec

from cadre.client.errors import Unreachable
from cadre.client.transport import Transport, answer_of
from cadre.journal.parts import JournalEvent
from cadre.journal.unions import event_from
from cadre.options import explained, explained_function
from cadre.protocol.deltas import Delta


@explained({"text": "match event.body: it is a Delta where type is 'delta'"})
class Event(NamedTuple):
    """One event of a run's stream: its type, and the JSON that goes with it (docs/http-api.md)."""

    type: str
    data: dict[str, Any]

    @property
    def run(self) -> str:
        """Id of the run that it is about: the one that is followed, or one below it."""
        return str(self.data.get("run", ""))

    @property
    def agent(self) -> str:
        """Name of that run's agent; "" of `end`."""
        return str(self.data.get("agent", ""))

    @property
    def seq(self) -> int | None:
        """Return where to go on behind it (`after`); None of `delta` and `end`, which are not stored."""
        return self.data.get("seq") if "event" in self.data else None

    @property
    def at(self) -> float | None:
        """Return when it was journaled, in Unix seconds; None of `delta` and `end`."""
        return self.data.get("at")

    @property
    def body(self) -> JournalEvent | Delta | None:
        """Return what it says, as a class of `cadre.events`; None of `end`, and of what this version does not know."""
        try:
            if self.type == "delta":
                return msgspec.convert(self.data, Delta)
            return event_from(self.data.get("event"))
        except msgspec.ValidationError:
            return None


View = Literal["events", "rows"]
"""The content of a stream: the events of the journals, or each entry's changes to the rows (`cadre.views.rows`)."""

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
        """Return whether the event has not been read before; takes note of it."""
        if event.event == "delta":
            return True
        # An entry's events differ at least in a call id or a type, so their text distinguishes them.
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
        """Start over: the gateway has answered."""
        self._pause, self._waited = 0.25, 0.0

    async def wait(self) -> bool:
        """Wait and return True; returns False at once when it has waited long enough."""
        if self._waited >= self._seconds:
            return False
        await asyncio.sleep(self._pause)
        self._waited += self._pause
        self._pause = min(self._pause * 2, 5.0)
        return True


async def read_events(
    client: httpx2.AsyncClient, run: str, *, patience: float = 60.0, after: str = "", view: View = "events"
) -> AsyncGenerator[Event, None]:
    """Yield all events of the run's tree, or those after the event id `after`; the last one is `end`.

    The deltas of each model's answer are its whole text; in the view `rows` they are those that came. A lost connection
    is retried for up to `patience` seconds each time. Raises ClientError: NotFound, Unreachable.
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
            raise Unreachable(f"lost the gateway ({problem}); the run goes on: `cadre show {run} --follow` looks again")


async def _read(
    client: httpx2.AsyncClient, run: str, resumption: StreamResumption, view: View
) -> AsyncGenerator[Event | None, None]:
    """Yield the events of one connection, and None for each frame without news: the gateway is alive."""
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


@dataclass
class _OpenAnswer:
    """An answer that is being written."""

    call: tuple[object, ...]
    text: str = ""
    """The text so far."""
    pieces: int = 0
    is_whole: bool = True
    """True if no piece was missed so far; else the rest waits for the end of the answer."""


class AnswerTexts:
    """Passes events on such that the deltas of each answer are its whole text, in order and without repetition.

    An attempt that came to nothing has no answer: its pieces stay, and those of the next have a higher `attempt`.
    """

    def __init__(self) -> None:
        self._open: dict[str, _OpenAnswer] = {}
        """By run."""

    def complete(self, event: Event) -> Iterator[Event]:
        """Yield the event unless it is a piece out of its order; before `model.answered` a delta with what is
        missing."""
        if event.type == "delta":
            if self._is_next(event.data):
                yield event
            return
        if event.type == "model.called":
            self._open[event.run] = _OpenAnswer(_call_of(event.data["event"]))
        elif event.type == "model.answered":
            yield from self._rest(event)
        yield event

    def _is_next(self, delta: dict[str, Any]) -> bool:
        answer = self._open.get(delta["run"])
        if answer is None or answer.call != _call_of(delta):
            return False
        if not answer.is_whole or delta["seq"] <= answer.pieces:
            return False
        if delta["seq"] > answer.pieces + 1:
            answer.is_whole = False
            return False
        answer.pieces += 1
        answer.text += delta["text"]
        return True

    def _rest(self, event: Event) -> Iterator[Event]:
        answered = event.data["event"]
        answer = self._open.pop(event.run, None)
        if answer is None or answer.call != _call_of(answered):
            answer = _OpenAnswer(_call_of(answered))
        content = str(answered.get("content") or "")
        if content.startswith(answer.text) and len(content) > len(answer.text):
            step, attempt, purpose = answer.call
            delta = {
                "run": event.run,
                "agent": event.agent,
                "step": step,
                "attempt": attempt,
                "purpose": purpose,
                "text": content[len(answer.text) :],
                "seq": answer.pieces + 1,
            }
            yield Event("delta", delta)


def _call_of(said: dict[str, Any]) -> tuple[object, ...]:
    """Return the model call of its run that a delta or an event is about."""
    return said.get("step"), said.get("attempt"), said.get("purpose", "")


_PAGE_SIZE = 200

LATE_SECONDS = 300.0
"""The longest delay with which a run may appear in the list after runs that were asked for later: clocks differ."""


@explained_function
async def follow(
    run: str, *, gateway: str | None = None, after: int = 0, patience: float = 60.0
) -> AsyncGenerator[Event, None]:
    """Yield every event of the run and of all runs below it, from its beginning until `end`.

    `event.type` is one of the journal's (`step.finished`, `tool.called` …), `delta` or `end`; `event.data` is the
    JSON that goes with it (docs/http-api.md).

    Args:
        run: The run's id.
        gateway: The gateway's address; by default CADRE_GATEWAY_URL, else that of the `cadre up` of this folder.
        after: `event.data["seq"]` of the last event that you have, to continue behind it.
        patience: Seconds for which a lost connection is retried.

    Raises:
        ClientError: `NotFound` for a run that does not exist, `Unreachable` after `patience` seconds.

    Examples:
        >>> import asyncio
        >>> async def print_events(run: str) -> None:
        ...     async for event in follow(run):
        ...         print(event.type)
        >>> asyncio.run(print_events("run1"))
        run.accepted
        end
    """
    async with Transport(gateway) as transport:
        reading = read_events(transport.http, run, patience=patience, after=str(after or ""))
        async with contextlib.aclosing(reading):
            async for event in reading:
                yield event


@explained_function
async def new_runs(
    agent: str | None = None, *, gateway: str | None = None, every: float = 1.0, patience: float = 60.0
) -> AsyncGenerator[str, None]:
    """Yield the id of each root run that is started from now on.

    Args:
        agent: The agent whose runs count; by default all agents'.
        gateway: The gateway's address; by default CADRE_GATEWAY_URL, else that of the `cadre up` of this folder.
        every: Seconds between two polls.
        patience: Seconds for which a gateway that does not answer is retried.

    Raises:
        ClientError: `Unreachable` after `patience` seconds.

    Examples:
        >>> import asyncio
        >>> async def follow_all() -> None:
        ...     async for run in new_runs("writer"):
        ...         async for event in follow(run):
        ...             print(run, event.type)
        >>> asyncio.run(follow_all())  # doctest: +SKIP
    """
    known: dict[str, float] | None = None
    """Runs that existed before or were already reported, with the times of their requests, as far as is looked back."""
    since: float | None = None
    backoff = Backoff(patience)
    async with Transport(gateway) as transport:
        while True:
            try:
                listed = await _started_runs(transport, agent, since)
            except Unreachable:
                if not await backoff.wait():
                    raise
                continue
            backoff.reset()
            before = listed if known is None else known
            for identity in reversed([run for run in listed if run not in before]):
                yield identity
            known = {**before, **listed}
            if known:
                since = max(known.values()) - LATE_SECONDS
                known = {run: at for run, at in known.items() if at >= since}
            await asyncio.sleep(every)


async def _started_runs(transport: Transport, agent: str | None, since: float | None) -> dict[str, float]:
    """Return when the runs were asked for that were so at or after `since`, newest first; without it, those around the
    newest."""
    found: dict[str, float] = {}
    query = {"limit": str(_PAGE_SIZE)} if agent is None else {"limit": str(_PAGE_SIZE), "agent": agent}
    while True:
        page = await transport.request("GET", "/v1/runs", params=query)
        asked = {str(run["id"]): _asked_at(run) for run in page["runs"]}
        found |= asked
        if since is None and asked:
            since = max(asked.values()) - LATE_SECONDS
        if page["next"] is None or since is None or min(asked.values(), default=since) < since:
            return {run: at for run, at in found.items() if since is None or at >= since}
        query["before"] = str(page["next"])


def _asked_at(run: dict[str, Any]) -> float:
    """Return when the run was asked for: unlike its beginning that never changes."""
    return float(run["asked_at"])
