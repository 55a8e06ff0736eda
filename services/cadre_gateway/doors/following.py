"""Follow the answer to a turn until the run pauses or ends, and its text while the model writes it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from dataclasses import dataclass
from typing import NamedTuple

from cadre.ports import Stored
from cadre.protocol.deltas import OF_ANSWER, Delta
from cadre.protocol.topology import tree_of
from cadre_gateway.doors.progress import Place, Progress, within_tokens
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem
from cadre_gateway.streaming.event_stream import WatchDeltas
from cadre_gateway.streaming.follow import EndOfRun, Follower, LiveFeeds, Notice

_IDLE_SECONDS = 2.0
_PING_SECONDS = 15.0
_TAKEN_SECONDS = 10.0
_NO_PAUSE = sys.maxsize


class News(NamedTuple):
    """The news of an entry, or a piece of a model's text; neither of them: nothing has happened for a moment."""

    entry: Stored | None
    lines: list[str]
    is_ping: bool = False
    delta: Delta | None = None


@dataclass(frozen=True)
class Answers:
    """Reads what runs do."""

    lookup: RunLookup
    feeds: LiveFeeds
    watch_deltas: WatchDeltas

    async def so_far(self, place: Place) -> Progress:
        """Return what the journals hold now. Raises a 404 problem, RetryableError, NewerSchema: a door
        that left entries out would tell of a run that goes on for ever."""
        progress = Progress(place.run, place.after)
        async with self.pages(place) as pages:
            async for page in pages:
                for stored in page:
                    progress.take(stored)
        return progress

    async def as_of(self, place: Place) -> Progress:
        """Return what the journals held at the place: nothing at the beginning. Raises as `so_far` does."""
        progress = Progress(place.run, place.after)
        if not place.after:
            return progress
        async with self.pages(place) as pages:
            async for page in pages:
                for stored in page:
                    if stored.seq > place.after:
                        return progress
                    progress.take(stored)
        return progress

    async def check(self, place: Place) -> None:
        """Raise a 404 problem if nothing can have been sent from there: an answer begins with its run, or behind an
        entry of its tree. Raises as `so_far` does."""
        if not place.after:
            await self.lookup.find(place.run)
            return
        async with self.pages(place) as pages:
            async for page in pages:
                if any(stored.seq == place.after for stored in page):
                    return
        raise Problem(404, "unknown-run", f"run {place.run} has no part {place.after}")

    async def place_behind(self, run: str, calls: Collection[str]) -> Place:
        """Return the place behind the last answer to these calls, once the run has taken in all of them: between two
        answers of one request it may seem to wait for the second. An agent that is away takes in none: after some
        seconds the place is that of those that were. Raises as `so_far` does."""
        progress = Progress(run, _NO_PAUSE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TAKEN_SECONDS), contextlib.aclosing(self.follow(progress)) as follow:
                async for _ in follow:
                    if progress.gone.keys() >= set(calls):
                        break
        return progress.place_behind(calls)

    @contextlib.asynccontextmanager
    async def pages(self, place: Place) -> AsyncIterator[AsyncIterator[list[Stored]]]:
        """Open all entries of the tree, page by page. Raises as `so_far` does."""
        await self.lookup.find(place.run)
        async with self.lookup.pages_of_tree(tree_of(place.run), all_of=place.run) as pages:
            yield pages

    async def follow(self, progress: Progress, *, live: bool = False) -> AsyncGenerator[News]:
        """Take entries into `progress` from the beginning until it is settled; `live`: yield deltas between them.
        Raises as `so_far` does, a 410 problem, and a 503 one when the gateway stops."""
        await self.lookup.find(progress.run)
        follower = Follower(self.lookup, self.feeds, progress.run, 0, idle_seconds=_IDLE_SECONDS, all_entries=True)
        pinged = time.monotonic()
        with contextlib.ExitStack() as stack:
            if live:
                stack.callback(await self.watch_deltas(tree_of(progress.run), follower.on_delta))
            stack.enter_context(self.feeds.follow(progress.run, follower.feed))
            async for item in follower.items():
                match item:
                    case Stored():
                        yield News(item, progress.take(item))
                        if progress.is_settled:
                            return
                    case Delta():
                        yield News(None, [], delta=item)
                    case EndOfRun():
                        break
                    case Notice.DRAINING:
                        raise Problem(
                            503,
                            "draining",
                            f"this gateway is stopping; run {progress.run} goes on: ask again",
                        )
                    case Notice():
                        is_ping = time.monotonic() - pinged > _PING_SECONDS
                        pinged = time.monotonic() if is_ping else pinged
                        yield News(None, [], is_ping)
        if not progress.is_settled:
            raise Problem(410, "run-erased", f"run {progress.run} was erased, or its end has expired")


def check_success(progress: Progress) -> None:
    """Raise a problem when the run has ended without an answer."""
    end = progress.end
    if end is None or end.state in ("success", "max_steps_error"):
        return
    why = f"{end.error.type}: {end.error.message}" if end.error is not None else end.state
    code = "run-cancelled" if end.state == "cancelled" else "run-failed"
    raise Problem(500, code, f"run {progress.run} ended without an answer: {why}")


class LiveText:
    """The text of an answer that was sent to a caller. Pieces come from several attempts at it, may be missed and are
    stored nowhere; text that was sent cannot be taken back."""

    def __init__(self, place: Place) -> None:
        self._run = place.run
        self.told = ""
        self._attempt = (0, 0)
        """Step and attempt of the latest call of the model that has written of an answer."""
        self._text, self._pieces, self._is_whole = "", 0, True
        """Of that attempt; it is whole until a piece was missed."""

    def take(self, delta: Delta) -> None:
        """Take in a piece of any attempt."""
        attempt = (delta.step, delta.attempt)
        if delta.run != self._run or delta.purpose != OF_ANSWER or attempt < self._attempt:
            return
        if attempt > self._attempt:
            self._attempt = attempt
            self._text, self._pieces, self._is_whole = "", 0, True
        if delta.seq > self._pieces:
            self._is_whole = self._is_whole and delta.seq == self._pieces + 1
            self._pieces = delta.seq
            self._text += delta.text

    def more(self, limit: int | None = None, tokens: int | None = None) -> str:
        """Return the text to send next, up to so many characters and tokens in all: text of an attempt only once it has
        caught up with the text sent of the one before, word for word.
        """
        return self._more(within_tokens(self._text[:limit], tokens)) if self._is_whole else ""

    def rest(self, answer: str) -> str | None:
        """Return the rest of the answer; None if the answer does not begin with the text that was sent."""
        return self._more(answer) if answer.startswith(self.told) else None

    def _more(self, text: str) -> str:
        if not text.startswith(self.told):
            return ""
        more, self.told = text[len(self.told) :], text
        return more
