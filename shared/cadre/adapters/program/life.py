"""One life of a program: a process from its begin to its end, answered from the record as far as that goes."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cadre.adapters.program.record import Record, RecordEntry, difference
from cadre.protocol.code import Api, CodeReply, CodeRequest, call_request
from cadre.protocol.deltas import StreamChunk
from cadre.protocol.messages import ErrorInfo

_TAIL_SECONDS = 2.0
"""The longest wait for the end of a stream after its answer: they take different paths."""

TOGETHER_SECONDS = 0.02
"""Requests that follow one another within it go to the run together."""

QUIET_SECONDS = 1.0
"""A program that has asked nothing for so long, and for twice the pause before what it is missing, has diverged."""

_IN_ORDER_SECONDS = 0.5
"""The longest time that an answer waits for earlier ones that were not requested in this life."""

_APART_SECONDS = 0.01
"""Between two answers that are given at once: which comes first may decide what a program does next."""


class RequestRefused(Exception):
    """A request that is not served.

    Attributes:
        status: of HTTP.
        code: for programs.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class LifeAsked(NamedTuple):
    """The program waits for these."""

    requests: list[CodeRequest]
    pause: float
    """Seconds after which the first of them was made."""


class LifeEnded(NamedTuple):
    """The function has returned, or raised, or asked for what it had not asked for before."""

    output: Any = None
    error: ErrorInfo | None = None


class LifeLost(NamedTuple):
    """The process has died."""

    why: str


Word = LifeAsked | LifeEnded | LifeLost
"""The events of a life."""


class LiveStream:
    """The stream that answers a request while its model writes; what is lost of it is never made up.

    Args:
        begins: says whether a stream may begin with a piece; without its beginning none of it is given.

    Attributes:
        given: how many pieces the program has been given.
        step: that of the model call; 0 before its first piece.
    """

    def __init__(self, begins: Callable[[dict[str, Any]], bool]) -> None:
        self.given = self.step = 0
        self._begins = begins
        self._pieces: list[dict[str, Any]] = []
        self._come = asyncio.Event()
        self._whole = asyncio.Event()
        self._attempt = self._seq = 0
        self._is_broken = False

    def take(self, chunk: StreamChunk) -> None:
        """Take a piece that has come. One that does not follow breaks the stream: some were lost, or the model was
        asked once more."""
        if not self._seq:
            self.step, self._attempt = chunk.step, chunk.attempt
        follows = (chunk.step, chunk.attempt, chunk.seq) == (self.step, self._attempt, self._seq + 1)
        if not follows or self._whole.is_set() or (chunk.seq == 1 and not self._begins(chunk.data or {})):
            self._is_broken = True
        if self._is_broken:
            return
        self._seq = chunk.seq
        if chunk.data is None:
            self._whole.set()
        else:
            self._pieces.append(chunk.data)
            self._come.set()

    async def come(self) -> None:
        """Wait for pieces that the program has not been given."""
        await self._come.wait()

    def give(self) -> list[dict[str, Any]]:
        """Return those pieces."""
        self._come.clear()
        found = self._pieces[self.given :]
        self.given += len(found)
        return found

    async def is_whole(self) -> bool:
        """Return True once all pieces have come, False if they do not. The answer of the request is there already."""
        if not self._is_broken:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._whole.wait(), _TAIL_SECONDS)
        return self._whole.is_set() and not self._is_broken


class Life:
    """The requests of one process, from its first to its end.

    Args:
        token: names it in its address; no other life has it.
        record: of the run, up to now.
        tools: the functions that it may call, as `name`, `description` and `parameters`.
    """

    def __init__(self, token: str, record: Record, tools: list[dict[str, Any]]) -> None:
        self.token = token
        self.tools = tools
        self._record = record
        self._new: list[RecordEntry] = []
        self._asked: list[RecordEntry] = []
        """Those that the run has taken up."""
        self._moved = asyncio.Event()
        self._replied: dict[int, asyncio.Event] = {}
        self._word: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        self._end: LifeEnded | LifeLost | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._since = time.monotonic()
        self._streams: dict[int, LiveStream] = {}
        """By the places of the requests that wait for one."""
        self._step = 0
        """That of the last stream; pieces of an earlier one come too late."""

    @property
    def is_over(self) -> bool:
        """Return True if nothing more is heard of it: its token is void."""
        return self._end is not None

    @property
    def is_lost(self) -> bool:
        """Return True if its process has died."""
        return isinstance(self._end, LifeLost)

    @property
    def asked(self) -> list[CodeRequest]:
        """Return what it waits for; [] while it is at work."""
        return [entry.request for entry in self._asked]

    async def word(self) -> Word:
        """Return what becomes of it, once that is known."""
        return await asyncio.shield(self._word)

    @property
    def live(self) -> LiveStream | None:
        """Return the stream that the program waits for: that of a request which it has made alone. What is asked
        together is given together, in one order in every life."""
        return self._streams.get(self._asked[0].place) if len(self._asked) == 1 else None

    def take(self, chunk: StreamChunk) -> None:
        """Take a piece of a stream."""
        if (live := self.live) is not None and chunk.step > self._step:
            live.take(chunk)

    def resume(self, replies: Sequence[CodeReply]) -> None:
        """Give it what it waits for."""
        if (live := self.live) is not None:
            self._step = max(self._step, live.step)
        for entry, reply in zip(self._asked, replies, strict=True):
            entry.reply = reply
            self._event_of(entry).set()
        self._asked = []
        self._word = asyncio.get_running_loop().create_future()
        self._since = time.monotonic()
        self._move()
        if self._end is not None:
            self._word.set_result(self._end)
        elif self._new:
            self._send_soon()

    def end(self, end: LifeEnded | LifeLost) -> None:
        """Note its end. The first one counts."""
        if self._end is not None:
            return
        self._end = end
        if self._sending is not None:
            self._sending.cancel()
        self._move()
        if not self._word.done():
            self._word.set_result(end)

    async def ask_model(
        self, api: Api, body: dict[str, Any], *, is_repeated: bool, live: LiveStream | None = None
    ) -> RecordEntry:
        """Return the entry of the request, answered; `live` takes the pieces of a new answer while they come. Raises
        RequestRefused."""
        self._check()
        self._move()
        entry = self._record.find_taken(body) if is_repeated else None
        entry = entry or self._record.find_model(api, body)
        while entry is None:
            rivals = self._record.rivals_of_model(api, body)
            if not rivals:
                entry = self._record.add_model(api, body, self._pause())
                if live is not None:
                    self._streams[entry.place] = live
                self._add(entry)
            else:
                await self._quiet(rivals, body)
                entry = self._record.find_model(api, body)
        return await self._answered(entry)

    async def call(self, tool: str, arguments: dict[str, Any], id: str) -> RecordEntry:
        """Return the entry of the call, answered. Raises RequestRefused."""
        self._check()
        self._move()
        entry = self._record.find_call(tool, arguments, id)
        while entry is None:
            rivals = self._record.rivals_of_call()
            if not rivals:
                entry = self._record.add_call(tool, arguments, id, self._pause())
                self._add(entry)
            else:
                await self._quiet(rivals, call_request(tool, arguments, id).arguments)
                entry = self._record.find_call(tool, arguments, id)
        return await self._answered(entry)

    def release(self, entry: RecordEntry) -> None:
        """Note that the program has been given the answer."""
        entry.is_released = True
        self._move()

    # --- inside

    def _check(self) -> None:
        if self._end is not None:
            raise RequestRefused(410, "life-over", "this process is not the one that works for the run any more")

    def _pause(self) -> float:
        return round(time.monotonic() - self._since, 3)

    def _move(self) -> None:
        """Wake all that wait for something to happen in this life."""
        self._moved.set()
        self._moved = asyncio.Event()

    def _event_of(self, entry: RecordEntry) -> asyncio.Event:
        return self._replied.setdefault(entry.place, asyncio.Event())

    def _add(self, entry: RecordEntry) -> None:
        self._new.append(entry)
        self._move()
        if not self._asked:
            self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._sending = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._send)

    def _send(self) -> None:
        self._sending = None
        if self._asked or not self._new or self._word.done():
            return
        self._asked, self._new = self._new, []
        pause = self._asked[0].pause
        self._word.set_result(LifeAsked([entry.request for entry in self._asked], pause))

    async def _quiet(self, rivals: Sequence[RecordEntry], content: dict[str, Any]) -> None:
        """Wait until something happens. Raises RequestRefused, and ends this life, if the program has been quiet too
        long: it asks for something else than in an earlier life."""
        moved, limit = self._moved, QUIET_SECONDS + 2 * max(one.pause for one in rivals)
        try:
            async with asyncio.timeout(limit):
                await moved.wait()
        except TimeoutError:
            rival = rivals[0]
            text = (
                f"request {rival.place + 1} of the program differs from that of an earlier life:"
                f" {difference(rival, content)}. Nothing was asked or done for it. Have the program ask the same each"
                " time it runs with one task: no clock, random ids or kept memory in what it asks"
            )
            self.end(LifeEnded(error=ErrorInfo("non-deterministic", text)))
            raise RequestRefused(409, "non_deterministic", text) from None
        self._check()

    async def _answered(self, entry: RecordEntry) -> RecordEntry:
        entry.is_taken = True
        self._move()
        replied = self._event_of(entry)
        while entry.reply is None:
            moved = asyncio.create_task(self._moved.wait())
            awaited = asyncio.create_task(replied.wait())
            try:
                await asyncio.wait({moved, awaited}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()
                awaited.cancel()
            self._check()
        await self._in_turn(entry)
        return entry

    async def _in_turn(self, entry: RecordEntry) -> None:
        """Wait until all earlier answers were given, in the order in which they were recorded."""
        until = time.monotonic() + _IN_ORDER_SECONDS
        waited = False
        while True:
            before = [one for one in self._record.entries[: entry.place] if not one.is_released]
            taken = any(one.is_taken for one in before)
            left = until - time.monotonic()
            if not before or (not taken and left <= 0):
                break
            waited = True
            moved = self._moved
            try:
                async with asyncio.timeout(None if taken else left):
                    await moved.wait()
            except TimeoutError:
                # What is not asked for by now is not waited for again.
                for one in before:
                    one.is_released = one.is_released or not one.is_taken
            self._check()
        if waited:
            await asyncio.sleep(_APART_SECONDS)
            self._check()
