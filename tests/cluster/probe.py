"""Appends to one subject of a stream without a pause, each behind the last: how long did nothing get through?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from itertools import pairwise
from typing import NamedTuple, TypeVar

from cadre.adapters.nats.connection.connect import NatsClient
from cadre.adapters.nats.streams import jetstream
from cadre.errors import CadreError
from harness.patience import patience

_ANSWER_WITHIN = 0.25
_PAUSE = 0.02

T = TypeVar("T")


class Appended(NamedTuple):
    at: float
    """Of time.monotonic()."""
    seq: int
    data: bytes


class Probe:
    """A fenced append every 20 ms; one that gets no answer is looked up before the next."""

    def __init__(self, nc: NatsClient, stream: str, subject: str) -> None:
        self._nc = nc
        self._stream = stream
        self._subject = subject
        self._task: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self.appended: list[Appended] = []

    async def __aenter__(self) -> Probe:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    def longest_gap(self, after: float) -> float:
        """Seconds without a successful append, at worst, since `after` (of time.monotonic())."""
        times = [after, *(one.at for one in self.appended if one.at > after)]
        return max(later - earlier for earlier, later in pairwise(times))

    async def resumed(self, after: float) -> None:
        """Returns once an append has succeeded since `after`."""
        async with asyncio.timeout(patience()):
            while not self.appended or self.appended[-1].at <= after:
                self._progress.clear()
                await self._progress.wait()

    async def lost(self) -> list[Appended]:
        """Return what was acknowledged and is not there any more."""
        held = await asyncio.gather(
            *(jetstream.api(self._nc, f"STREAM.MSG.GET.{self._stream}", {"seq": one.seq}) for one in self.appended)
        )
        return [
            one
            for one, answer in zip(self.appended, held, strict=True)
            if answer.get("message", {}).get("subject") != self._subject
        ]

    async def _run(self) -> None:
        fence: int | None = 0
        for number in range(10**9):
            data = b"%d" % number
            try:
                if fence is None:
                    last = await self._in_time(jetstream.last(self._nc, self._stream, self._subject))
                    fence = last.seq if last is not None else 0
                fence = await self._in_time(jetstream.append(self._nc, self._subject, data, expect=fence))
                self.appended.append(Appended(time.monotonic(), fence, data))
                self._progress.set()
            except (CadreError, TimeoutError):
                fence = None
            await asyncio.sleep(_PAUSE)

    @staticmethod
    async def _in_time(asked: Awaitable[T]) -> T:
        # Not wait_for, which forgets a cancellation that comes together with the answer.
        async with asyncio.timeout(_ANSWER_WITHIN):
            return await asked
