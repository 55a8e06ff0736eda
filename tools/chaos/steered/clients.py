"""Clients that start runs at either gateway, follow them, cancel them twice and tell them things in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx2

from chaos.steered.judge import Seen, Told

MESSAGES = 8
EVERY_SECONDS = 2
"""Seconds between two ticks."""

_SCHEDULE = "steady"
_TIMEOUT = httpx2.Timeout(10.0, read=20.0)
_PAUSE_SECONDS = 0.1
_GONE_FOR_NOW = {502, 503, 504}


class Clients:
    """`seen` grows; requests go to the gateways in turn until one of them answers."""

    def __init__(self, gateways: list[str], seen: Seen, seed: int) -> None:
        self._gateways = itertools.cycle(gateways)
        self._chance = random.Random(seed)
        self.seen = seen
        self.telling = asyncio.Event()
        """A run has acknowledged a message."""

    async def hold(self, key: str) -> None:
        """A booking that is cancelled amid what it does, several times with one key."""
        run = await self._start(key, "booker", key)
        booked = asyncio.Event()

        def look_for_the_wait(name: str) -> None:
            if name == "wait.started":
                booked.set()

        following = asyncio.create_task(self._follow(run, look_for_the_wait))
        wait = asyncio.create_task(booked.wait())
        await asyncio.wait({wait, following}, return_when=asyncio.FIRST_COMPLETED)
        statuses = self.seen.cancels[run] = []
        for pause in (0.0, self._chance.uniform(0.0, 0.6), self._chance.uniform(0.0, 1.0)):
            await asyncio.sleep(pause)
            body, headers = {"reason": "not wanted"}, {"Idempotency-Key": f"cancel-{key}"}
            answer = await self._insist("POST", f"/v1/runs/{run}/cancel", body, headers)
            statuses.append(answer.status_code)
        wait.cancel()
        await following

    async def listen(self, key: str, messages: int = MESSAGES) -> None:
        """Send a run messages, each after the previous one was acknowledged; the run ends when it has read the last."""
        run = await self._start(key, "listener", f"listen {key}")
        self.seen.wanted[run] = "heard"
        following = asyncio.create_task(self._follow(run))
        told = self.seen.told[run] = []
        for number in range(messages):
            text = f"word {'last of' if number == messages - 1 else number} {key}"
            headers = {"Idempotency-Key": f"{key}-{number}"}
            answer = await self._insist("POST", f"/v1/runs/{run}/messages", {"text": text}, headers)
            told.append(Told(text, answer.status_code))
            self.telling.set()
            await asyncio.sleep(self._chance.uniform(0.0, 0.5))
        await following

    async def fetch(self, key: str) -> None:
        """A run of the agent that has one replica, with a tool that has one process."""
        run = await self._start(key, "loner", f"fetch {key}")
        self.seen.wanted[run] = f"ok:fetch:{key}"
        await self._follow(run)

    @contextlib.asynccontextmanager
    async def ticking(self) -> Any:
        """A schedule that is on meanwhile; yields the Unix time of its first tick."""
        start = int(time.time()) + 2
        moment = datetime.fromtimestamp(start, UTC).isoformat()
        times = {"every": EVERY_SECONDS, "start": moment, "overlap": "allow", "missed": "all"}
        task = "tick {{ count }} {{ tick.timestamp() | int }}"
        body = {"name": _SCHEDULE, "agent": "ticker", "task": task, **times}
        made = await self._insist("PUT", f"/v1/schedules/{_SCHEDULE}", body)
        assert made.is_success, made.text
        yield start
        await self._insist("POST", f"/v1/schedules/{_SCHEDULE}/pause", {})
        self.seen.every, self.seen.ticking = EVERY_SECONDS, time.time() - start

    async def _start(self, key: str, agent: str, task: str) -> str:
        answer = await self._insist("POST", "/v1/runs", {"agent": agent, "task": task}, {"Idempotency-Key": key})
        if answer.status_code not in (200, 202):
            self.seen.refused.append(f"run {key} of {agent} was answered {answer.status_code}: {answer.text[:200]}")
            raise AssertionError(self.seen.refused[-1])
        run: str = answer.json()["id"]
        self.seen.runs[key] = run
        return run

    async def _follow(self, run: str, on_event: Callable[[str], object] = bool) -> None:
        """To the end of the run, coming back with Last-Event-ID after each loss."""
        told, heard = self.seen.streams.setdefault(run, []), self.seen.heard.setdefault(run, {})
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if await self._read(run, told, heard, on_event):
                    break
            await asyncio.sleep(_PAUSE_SECONDS)
        answer = (await self._insist("GET", f"/v1/runs/{run}")).json()
        self.seen.ends[run] = answer["state"], answer["output"]

    async def _read(
        self,
        run: str,
        told: list[int],
        heard: dict[int, float],
        on_event: Callable[[str], object],
    ) -> bool:
        headers = {"Last-Event-ID": str(told[-1])} if told else {}
        async with (
            httpx2.AsyncClient(base_url=next(self._gateways), timeout=_TIMEOUT) as client,
            client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as answer,
        ):
            if not answer.is_success:
                return False
            name = ""
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "id":
                    told.append(int(value))
                    heard.setdefault(int(value), time.time())
                elif field == "data" and name == "end":
                    return True
                elif field == "data":
                    on_event(name)
        return False

    async def _insist(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        """Return the answer of a gateway that can give one; each try opens a new connection."""
        while True:
            with contextlib.suppress(httpx2.TransportError):
                async with httpx2.AsyncClient(base_url=next(self._gateways), timeout=_TIMEOUT) as client:
                    answer = await client.request(method, path, json=body, headers=headers)
                if answer.status_code not in _GONE_FOR_NOW:
                    return answer
            await asyncio.sleep(_PAUSE_SECONDS)
