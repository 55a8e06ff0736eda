"""Clients of a deployment whose connections are cut: they start runs, follow them, and disagree about held calls."""

import asyncio
import contextlib
import json
from typing import Any

import httpx2

from chaos.adversary.audit import Ruling, Seen

_TIMEOUT = httpx2.Timeout(10.0, read=20.0)
_PAUSE_SECONDS = 0.1
_GONE_FOR_NOW = {404, 502, 503, 504}
"""404 too: a gateway that has just started knows no agent, and no run that another has just accepted."""


class People:
    """`seen` is what they are sent; `gateways` are reached directly, `proxy` leads to any of them."""

    def __init__(self, proxy: str, gateways: list[str], seen: Seen) -> None:
        self._proxy = proxy
        self._gateways = gateways
        self.seen = seen

    async def run(self, key: str, agent: str, task: str, **fields: Any) -> str:
        """Starts a run, however often its request is cut off, and follows it to its end; people rule on its calls."""
        body = {"agent": agent, "task": f"{task} {key}", **fields}
        answer = await self._insist(self._proxy, "POST", "/v1/runs", body, {"Idempotency-Key": key})
        run: str = answer.json()["id"]
        self.seen.runs[key] = run
        told = self.seen.streams[run] = []
        rulings: list[asyncio.Task[None]] = []
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if await self._follow(run, told, rulings):
                    break
            await asyncio.sleep(_PAUSE_SECONDS)
        await asyncio.gather(*rulings)
        return run

    async def _follow(self, run: str, told: list[int], rulings: list[asyncio.Task[None]]) -> bool:
        headers = {"Last-Event-ID": str(told[-1])} if told else {}
        async with (
            httpx2.AsyncClient(base_url=self._proxy, timeout=_TIMEOUT) as client,
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
                elif field == "data" and name == "approval.requested":
                    rulings += self._disagree(json.loads(value)["event"]["call"])
                elif field == "data" and name == "end":
                    return True
        return False

    def _disagree(self, call: str) -> list[asyncio.Task[None]]:
        """Two people say the opposite at once, each to another gateway, and each again when no one answers."""
        if any(ruling.call == call for ruling in self.seen.rulings):
            return []
        words = zip(("approved", "rejected"), self._gateways, strict=True)
        return [asyncio.create_task(self._rule(call, word, gateway)) for word, gateway in words]

    async def _rule(self, call: str, word: str, gateway: str) -> None:
        answer = await self._insist(gateway, "POST", f"/v1/approvals/{call}", {"verdict": word, "by": word})
        verdict = answer.json().get("verdict", "") if answer.is_success else ""
        self.seen.rulings.append(Ruling(call, word, answer.status_code, verdict))

    async def _insist(
        self, url: str, method: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        while True:
            # Its own connection: a pool would hand out those that were cut.
            with contextlib.suppress(httpx2.TransportError):
                async with httpx2.AsyncClient(base_url=url, timeout=_TIMEOUT) as client:
                    answer = await client.request(method, path, json=body, headers=headers)
                if answer.status_code not in _GONE_FOR_NOW:
                    return answer
            await asyncio.sleep(_PAUSE_SECONDS)
