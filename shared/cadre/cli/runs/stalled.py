"""Says of a followed run that it waits for what nobody serves."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from cadre.cli.run_view.screen import Screen
from cadre.client.errors import ClientError

if TYPE_CHECKING:
    from cadre.client.client import Client

_QUIET_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 30.0
"""How long a run may be silent before it is looked at, and how long a silent one is let be at most."""


class StalledRuns:
    """Looks at a run and those below it when they have been silent for a while; notes each lack once, as it begins."""

    def __init__(self, client: Client, run: str, screen: Screen) -> None:
        self._client = client
        self._run = run
        self._screen = screen
        self._heard_at = time.monotonic()
        self._noted: set[tuple[str, str]] = set()

    def hear(self) -> None:
        """Something has happened to the run."""
        self._heard_at = time.monotonic()

    async def look(self) -> None:
        """Looks now and then, until it is cancelled."""
        pause = _QUIET_SECONDS
        while True:
            await asyncio.sleep(pause)
            if time.monotonic() - self._heard_at < _QUIET_SECONDS:
                pause = _QUIET_SECONDS
                continue
            pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)
            try:
                found = {*_lacks(await self._client.request("GET", f"/v1/runs/{self._run}"))}
            except ClientError:
                continue  # whoever reads the events says so
            for run, what in sorted(found - self._noted):
                self._screen.note(f"run {run} waits for {what}, which nobody serves at the moment")
            self._noted = found


def _lacks(run: dict[str, Any]) -> list[tuple[str, str]]:
    """(run, what nobody serves) of the run and of all below it."""
    what = run.get("waiting_for")
    # What a `waiting` run waits for its events tell anyway.
    own = [(str(run["id"]), str(what))] if what and run.get("state") != "waiting" else []
    return own + [lack for child in run.get("children") or [] for lack in _lacks(child)]
