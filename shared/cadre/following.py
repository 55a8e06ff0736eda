"""Following runs from a program, as callbacks do in a library: `async for event in follow(run)`.

A follower is a subscriber: it can be slow, fail or die without touching the run, and go on where it was. What must
be able to hold a run up is no callback but a check of answers, an approval, or a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from cadre.cli.exits import Failure
from cadre.cli.follow import Event
from cadre.cli.follow import follow as events_of
from cadre.cli.gateway import body, gateway_url, reaching
from cadre.cli.watch import connect
from cadre.errors import CadreError

__all__ = ["Event", "FollowingFailed", "follow", "new_runs"]

_PAGE = 200


class FollowingFailed(CadreError):
    """The gateway does not know the run, or cannot be reached; its text says what to do."""


async def follow(
    run: str, *, gateway: str | None = None, after: int = 0, patience: float = 60.0
) -> AsyncGenerator[Event, None]:
    """Every event of the run and all runs below it, from its beginning, until `end`.

    `event.name` is one of the journal's (`step.finished`, `tool.called` …), `delta` or `end`; `event.data` is the
    JSON that goes with it (docs/http-api.md). Who keeps `event.data["seq"]` of what was dealt with goes on behind it
    with `after`. A lost connection is taken up again for `patience` seconds. Without `gateway`, the one of
    CADRE_GATEWAY_URL or of the `cadre up` of this folder. Raises FollowingFailed.
    """
    try:
        async with connect(gateway or gateway_url()) as client:
            async for event in events_of(client, run, patience=patience, after=str(after or "")):
                yield event
    except Failure as failure:
        raise FollowingFailed(failure.message) from failure


async def new_runs(
    agent: str | None = None, *, gateway: str | None = None, every: float = 1.0
) -> AsyncGenerator[str, None]:
    """Ids of root runs, of one agent or of all, that begin from now on, for ever; asked for `every` so many seconds.

    Raises FollowingFailed.
    """
    url = gateway or gateway_url()
    try:
        async with connect(url) as client:
            known: set[str] | None = None
            while True:
                asked = {"agent": agent, "limit": str(_PAGE)} if agent is not None else {"limit": str(_PAGE)}
                with reaching(url):
                    runs = body(await client.get("/v1/runs", params=asked))["runs"]
                listed = [str(run["id"]) for run in runs]
                for identity in reversed(listed):
                    if known is not None and identity not in known:
                        yield identity
                known = (known or set()) | set(listed)
                await asyncio.sleep(every)
    except Failure as failure:
        raise FollowingFailed(failure.message) from failure
