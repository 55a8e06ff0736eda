"""Users who keep a deployment busy: each submits a run until it is accepted, sees it end, and begins again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2

_PAUSE = 0.1
_ENDS_WITHIN = 60.0


class Load:
    """`accepted` are the runs that were answered with 202, `ended` their summaries by id."""

    def __init__(self, gateway: str, agent: str, task: str) -> None:
        self._gateway = gateway
        self._body = {"agent": agent, "task": task}
        self._stopping = False
        self._progress = asyncio.Event()
        self.accepted: list[str] = []
        self.refused = 0
        """Answers that said: not now, try again."""
        self.ended: dict[str, dict[str, Any]] = {}

    async def more(self, count: int) -> None:
        """Returns when so many more runs have ended."""
        wanted = len(self.ended) + count
        async with asyncio.timeout(_ENDS_WITHIN):
            while len(self.ended) < wanted:
                self._progress.clear()
                await self._progress.wait()

    def stop(self) -> None:
        """Begins no more runs."""
        self._stopping = True

    async def user(self) -> None:
        async with httpx2.AsyncClient(base_url=self._gateway, timeout=30, trust_env=False) as client:
            while not self._stopping:
                run = await self._accepted(client)
                self.accepted.append(run)
                async with asyncio.timeout(_ENDS_WITHIN):
                    self.ended[run] = await self._ended(client, run)
                self._progress.set()

    async def _accepted(self, client: httpx2.AsyncClient) -> str:
        """Return what any client should do: the same key until the answer is 202."""
        key = uuid4().hex
        while True:
            answer = await client.post("/v1/runs", json=self._body, headers={"Idempotency-Key": key})
            if answer.status_code == 202:
                run: str = answer.json()["id"]
                return run
            assert answer.status_code == 503, answer.text
            self.refused += 1
            await asyncio.sleep(_PAUSE)

    async def _ended(self, client: httpx2.AsyncClient, run: str) -> dict[str, Any]:
        while True:
            answer = await client.get(f"/v1/runs/{run}")
            if answer.status_code == 200:
                summary: dict[str, Any] = answer.json()
                if summary["ended_at"] is not None:
                    return summary
            else:
                assert answer.status_code == 503, answer.text
            await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def users(count: int, gateway: str, agent: str, task: str) -> AsyncIterator[Load]:
    """So many users at work; on leaving they finish the runs that they have begun. Raises what one met."""
    load = Load(gateway, agent, task)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(load.user())
        yield load
        load.stop()
