"""Following runs from a program, as callbacks do in a library: `async for event in follow(run)`.

A follower is a subscriber: it can be slow, fail or die without touching the run, and go on where it was. To hold a
run up, use a check of answers, an approval or a tool instead.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from cadre.client.errors import Unreachable
from cadre.client.event import Event
from cadre.client.events import Backoff, read_events
from cadre.client.transport import Transport
from cadre.options import explained_function

_PAGE_SIZE = 200

LATE_SECONDS = 300.0
"""How much later a run may appear in the list than others that were asked for after it: clocks differ."""


@explained_function
async def follow(
    run: str, *, gateway: str | None = None, after: int = 0, patience: float = 60.0
) -> AsyncGenerator[Event, None]:
    """Yields every event of the run and of all runs below it, from its beginning until `end`.

    `event.type` is one of the journal's (`step.finished`, `tool.called` …), `delta` or `end`; `event.data` is the
    JSON that goes with it (docs/http-api.md). To go on where you stopped, keep `event.data["seq"]` of the last event
    and pass it as `after`. A lost connection is taken up again for `patience` seconds. Without `gateway`, the one of
    CADRE_GATEWAY_URL or of the `cadre up` of this folder is used. Raises ClientError.
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
    """Yields the ids of root runs, of one agent or of all, that are asked for from now on; polls every `every` seconds.

    A gateway that does not answer is asked again for `patience` seconds. Raises ClientError.
    """
    known: dict[str, float] | None = None
    """Runs that were there before or have been told of, with when they were asked for, as far as is looked back."""
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
    """When the runs were asked for that were so at or after `since`, newest first; without it, those around the
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
