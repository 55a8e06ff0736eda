"""A steady load of runs through the gateway, each followed to its end, however often the gateway goes away."""

import asyncio
import json
import time
from typing import Any, NamedTuple

import httpx2
import msgspec

from chaos.expected_kinds import CORRECTED

PACE = 0.4
"""Seconds between two submissions."""

MOST_OPEN = 32
"""Runs at work at once: more are not submitted."""

_PAUSE = 0.1
_TIMEOUT = httpx2.Timeout(15.0, read=30.0)
_GONE_FOR_NOW = {502, 503, 504}
_GOES_ON_WAITING = "the call goes on waiting"
"""The gateway's answer to a correction that needs a tool which has just gone."""


class Refusal(NamedTuple):
    """A try of submitting a run that the gateway did not accept; times are those of time.monotonic."""

    began: float
    ended: float
    why: str
    """The status that it answered, or what became of the connection."""


class Order(msgspec.Struct):
    """One root run as its client sees it."""

    number: int
    run: str = ""
    """Its id, once the gateway has accepted it."""
    submitted_at: float = 0.0
    seconds: float = 0.0
    """From the first try of submitting it to its end."""
    refusals: list[Refusal] = []
    """Before the gateway accepted it, in the order of the tries."""
    seen: list[int] = []
    """Stream sequences of the entries that the event stream reported, in its order, over all its connections."""
    state: str = ""
    """As the gateway reports it at the end; empty while the run has not ended."""
    output: Any = None

    @property
    def refused(self) -> float:
        """Seconds for which the gateway did not accept it."""
        return self.refusals[-1].ended - self.refusals[0].began if self.refusals else 0.0


class Unacceptable(Exception):
    """The gateway answered what no client should have to live with."""


class Load:
    """`orders` has every run that was begun; `troubles` what the gateway must not answer."""

    def __init__(self, url: str, key: str, *, mixed: bool = True) -> None:
        """`mixed`: every other run goes to agents of the kinds goals, task_queue, solution and plan."""
        self._step = 1 if mixed else 2
        self._url = url
        self._key = key
        self.orders: list[Order] = []
        self.troubles: list[str] = []
        self.going = asyncio.Event()
        """The first run has ended: everybody is at work."""
        self._open: set[asyncio.Task[None]] = set()

    async def submit_until(self, enough: asyncio.Event) -> None:
        """Begins a run every PACE seconds, while fewer than MOST_OPEN are open."""
        while not enough.is_set():
            if len(self._open) < MOST_OPEN:
                order = Order(len(self.orders) * self._step)
                self.orders.append(order)
                task = asyncio.create_task(self._see_through(order))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            await asyncio.sleep(PACE)

    async def all_ended(self, within: float) -> None:
        """Waits for the end of every run; gives up after `within` seconds, and says of which."""
        if self._open:
            _, stuck = await asyncio.wait(set(self._open), timeout=within)
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
        for order in self.orders:
            if not order.state:
                self.troubles.append(f"run {order.number} ({order.run or 'not accepted'}) has not ended")

    async def _see_through(self, order: Order) -> None:
        began = time.monotonic()
        # Its own connection: a pool would hand out those that a killed gateway left behind.
        async with httpx2.AsyncClient(base_url=self._url, timeout=_TIMEOUT) as client:
            try:
                await self._submit(client, order)
                await self._follow(client, order)
                found = await self._insist(client, "GET", f"/v1/runs/{order.run}")
                order.state, order.output = found["state"], found["output"]
            except Unacceptable as error:
                self.troubles.append(f"run {order.number} ({order.run}): {error}")
            finally:
                order.seconds = time.monotonic() - began
                self.going.set()

    async def _submit(self, client: httpx2.AsyncClient, order: Order) -> None:
        order.submitted_at = time.time()
        body = {"agent": "boss", "task": f"task <{order.number}>"}
        headers = {"Idempotency-Key": f"{self._key}-{order.number}"}
        order.run = (await self._insist(client, "POST", "/v1/runs", order.refusals, json=body, headers=headers))["id"]
        again = (await self._insist(client, "POST", "/v1/runs", json=body, headers=headers))["id"]
        if again != order.run:
            raise Unacceptable(f"its Idempotency-Key began a second run, {again}")

    async def _insist(
        self,
        client: httpx2.AsyncClient,
        method: str,
        path: str,
        refusals: list[Refusal] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The answer, asked for until the gateway can give it; `refusals` are added to."""
        while True:
            began = time.monotonic()
            try:
                answer = await client.request(method, path, **options)
            except httpx2.TransportError as error:
                why = repr(error)
            else:
                if answer.is_success:
                    body: dict[str, Any] = answer.json()
                    return body
                _check_refusal(answer)
                why = f"{answer.status_code} {answer.text[:100]}"
            if refusals is not None:
                refusals.append(Refusal(began, time.monotonic(), why))
            await asyncio.sleep(_PAUSE)

    async def _follow(self, client: httpx2.AsyncClient, order: Order) -> None:
        """Reads the run's events until `end`, coming back with Last-Event-ID after each loss."""
        while True:
            try:
                if await self._read_events(client, order):
                    return
            except httpx2.TransportError:
                pass  # the gateway is gone, or stands still: come back
            await asyncio.sleep(_PAUSE)

    async def _read_events(self, client: httpx2.AsyncClient, order: Order) -> bool:
        headers = {"Last-Event-ID": str(order.seen[-1])} if order.seen else {}
        async with client.stream("GET", f"/v1/runs/{order.run}/events", headers=headers) as answer:
            if not answer.is_success:
                await answer.aread()
                _check_refusal(answer)
                return False
            name = ""
            async for line in answer.aiter_lines():
                key, _, value = line.partition(": ")
                if key == "event":
                    name = value
                elif key == "id":
                    order.seen.append(int(value))
                elif key == "data" and name == "approval.requested":
                    await self._correct(client, order, json.loads(value)["event"]["call"])
                elif key == "data" and name == "end":
                    return bool(json.loads(value)["state"])
        return False

    async def _correct(self, client: httpx2.AsyncClient, order: Order, call: str) -> None:
        """A person agrees to a solution, but for the job of its first call."""
        edit = {"call": 1, "arguments": {"job": f"{order.number}.s{CORRECTED}"}}
        body = {"verdict": "approved", "edits": [edit], "by": "somebody"}
        await self._insist(client, "POST", f"/v1/approvals/{call}", json=body)


def _check_refusal(answer: httpx2.Response) -> None:
    """Raises Unacceptable unless the gateway said to come back, or knows no agent so soon after its start.

    A correction whose tool is not there for the moment is made again too."""
    if answer.status_code in _GONE_FOR_NOW:
        return
    if answer.status_code == 422 and _GOES_ON_WAITING in answer.text:
        return
    if answer.status_code == 404 and '"unknown-agent"' in answer.text:
        return
    raise Unacceptable(f"the gateway answered {answer.status_code}: {answer.text[:300]}")
