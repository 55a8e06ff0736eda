"""A service at work on one NATS account: it connects, serves, drains and closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from cadre.adapters.nats.streams.shard_watch import BEHIND
from cadre.adapters.nats.streams.store_watch import StoreWatch
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import CadreError
from cadre.service.health import AsgiApp, Unready, send_problem
from cadre.service.platform import Measured, Part, Platform, Start, Telling, open_platform
from cadre.settings import Settings
from cadre.telemetry.metrics.meters import Meters, Sample
from cadre.telemetry.metrics.names import CLOCK_SKEW, STORE_STATE, STORE_TROUBLE

log = logging.getLogger("cadre.service")

CLOSE_WITHIN = 3.0


class ServiceProcess(NamedTuple):
    """The resources that a process gives to what it serves."""

    name: str
    settings: Settings
    meters: Meters
    health_url: str
    give_up: Callable[[str], None]
    """Called with the reason when the connection to NATS is closed for good, without anybody here having wanted it."""


class Serving(Protocol):
    """A service of a process, from its start to its end."""

    async def open(self) -> None:
        """Return once it works. Raises CadreError when it cannot."""
        ...

    def unready(self) -> Unready | None:
        """Return what is missing; None when it can work."""
        ...

    def about(self) -> dict[str, str]:
        """Return additional fields for /readyz."""
        ...

    async def samples(self) -> list[Sample]:
        """Return its own figures. Raises CadreError."""
        ...

    def front(self, app: AsgiApp) -> AsgiApp:
        """Return what requests come to first; `app` answers the probes, and gives the rest to `dispatch`."""
        ...

    async def dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        ...

    async def drain(self) -> bool:
        """Say goodbye, stop taking work, finish or hand back what is in hand; whether all of that was done."""
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


class ServedAccount:
    """One service on one NATS account."""

    def __init__(self, process: ServiceProcess, start: Start) -> None:
        self._process = process
        self._start = start
        self.platform: Platform | None = None
        self._part: Part | None = None
        self._store: StoreWatch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._growing: asyncio.Task[None] | None = None
        self._lack = ""
        """Things that others have yet to set up."""

    async def open(self) -> None:
        """Connect, waiting for the server, and starts the part. Raises CadreError."""
        name, settings, meters, health_url, give_up = self._process
        self.platform = await open_platform(name, settings, health_url, meters, give_up, self._waits)
        store = StoreWatch(self.platform.nc, self.platform.topology)
        self._watching = await retry(store.start, pauses=EVERY_SECOND, log=log)
        self._store = store
        self._part = await self._start(self.platform)
        self._growing = asyncio.create_task(self.platform.shards.run(), name="shards")

    def _waits(self, lack: str) -> None:
        self._lack = lack

    def unready(self) -> Unready | None:
        """Return what is missing; None when it can work."""
        if self._lack:
            return Unready("starting", self._lack)
        if self.platform is None or not self.platform.nc.is_connected:
            return Unready("bus-unavailable", "not connected to NATS", is_shared=True)
        if (problem := self.platform.clock.problem()) is not None:
            return Unready("clock-skew", problem)
        if self._store is not None and (trouble := self._store.trouble()) is not None:
            return Unready(*trouble, is_shared=True)
        if self._part is None:
            return Unready("starting", self.platform.opening.lacks)
        if (behind := self.platform.shards.trouble()) is not None:
            return Unready(*behind)
        lack = self._part.unready()
        return Unready("not-ready", lack) if lack is not None else None

    def about(self) -> dict[str, str]:
        """Return what the part says of itself, that the store is full, and that it does not serve all shards yet."""
        full = self._store.full() if self._store is not None else None
        own: dict[str, str] = self._part.about() if isinstance(self._part, Telling) else {}
        if self.platform is not None and (behind := self.platform.shards.behind()) is not None:
            own |= {"shards": behind, "shards_code": BEHIND}
        return own if full is None else own | {"store": full.text}

    async def samples(self) -> list[Sample]:
        """Return the figures of the connection, the store and the part. Raises CadreError."""
        if self.platform is None:
            return []
        found = [Sample(CLOCK_SKEW, self.platform.clock.skew)]
        if self._store is not None:
            states = self._store.states().items()
            found += [Sample(STORE_TROUBLE, float(there), {STORE_STATE: state}) for state, there in states]
        # Of a store that is another one they mean nothing; a silent one would keep all figures waiting.
        may_ask = self._store is None or (self._store.lost() is None and not self._store.is_silent())
        if isinstance(self._part, Measured) and may_ask:
            found += await self._part.samples()
        return found

    def front(self, app: AsgiApp) -> AsgiApp:
        """Nothing stands before the probes."""
        return app

    async def dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        """Have the part answer, if it can."""
        if self._part is None:
            missing = self.unready()
            detail = f"{self._process.name} cannot work yet: {missing.text if missing else 'starting'}"
            has_bus = self.platform is not None and self.platform.nc.is_connected
            await send_problem(send, 503, "starting" if has_bus else "bus-unavailable", detail)
        elif self._store is not None and (lost := self._store.lost()) is not None:
            # What is remembered here is of a store that is not there any more.
            await send_problem(send, 503, "bus-unavailable", lost)
        elif self._part.app is None:
            detail = f"{self._process.name} serves /healthz and /readyz only"
            await send_problem(send, 404, "not-found", detail)
        else:
            await self._part.app(scope, receive, send)

    async def drain(self) -> bool:
        """Say goodbye and drains the part, as far as it can be done; whether all of it was."""
        for task in filter(None, (self._watching, self._growing)):
            task.cancel()
        if self.platform is None:
            return True
        nc, registry = self.platform.nc, self.platform.registry
        done = [not nc.is_connected or await self._done(registry.withdraw(), CLOSE_WITHIN)]
        if self._part is not None and not nc.is_closed:
            grace = self._process.settings.drain_seconds
            done.append(await self._done(self._part.drain(grace), grace + CLOSE_WITHIN))
        if not all(done):
            log.warning("%s: not drained in full; what is left is delivered again", self._process.name)
        return all(done)

    async def close(self) -> None:
        """Let go of the connection."""
        if self.platform is not None:
            await self._done(self.platform.registry.stop(), CLOSE_WITHIN)
            await self._done(self.platform.nc.close(), CLOSE_WITHIN)

    async def _done(self, step: Awaitable[None], within: float) -> bool:
        assert self.platform is not None
        try:
            await asyncio.wait_for(step, within)
        except (CadreError, TimeoutError) as error:
            log.warning("while stopping: %s", error or f"not done within {within:g} s")
        except RuntimeError as error:
            # What uvloop says of a socket that is gone; with a living connection it is somebody's defect.
            if self.platform.nc.is_connected:
                raise
            log.warning("while stopping, without a connection to NATS: %s", error)
        else:
            return True
        return False
