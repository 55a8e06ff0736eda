"""The frame of every service process: connect, serve health, run the part, drain on SIGTERM.

`/healthz` answers while the event loop turns; `/readyz` only while NATS is connected and the part is
ready. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import uvicorn

from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.objects.blobs import NatsBlobs
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.server_clock import ServerClock
from cadre.adapters.nats.streams.provision import provision
from cadre.adapters.nats.streams.store_watch import StoreWatch
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import BusUnavailable, CadreError, OutcomeUnknown, SetupError
from cadre.local.local_stack import nats_now
from cadre.ports import Journal
from cadre.protocol.cards import SUBJECTS, AgentCard, Presence, SandboxCard, ToolCard
from cadre.protocol.topology import Topology
from cadre.service.bounded_http import bounded_protocol
from cadre.service.forked_children import cut_off_children
from cadre.service.hang_watch import watch_for_hang
from cadre.service.health import AsgiApp, send_problem, with_health
from cadre.service.metrics import Measuring
from cadre.service.older_replicas import await_older_gone
from cadre.settings import HttpBounds, MetricsSettings, Settings, read_http_bounds, read_metrics_settings
from cadre.telemetry.logs import configure_logging
from cadre.telemetry.metrics.meters import Meters, Sample
from cadre.telemetry.metrics.names import CLOCK_SKEW, STORE_STATE, STORE_TROUBLE

log = logging.getLogger("cadre.service")

CLOSE_WITHIN = 3.0
LAST_FIGURES_WITHIN = 2.0


class ConnectionGivenUp(CadreError):
    """The connection to NATS is closed for good."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the connection to NATS was closed for good ({reason}); start this process again")


_STATUS: dict[type[CadreError], int] = {BusUnavailable: 5, ConnectionGivenUp: 5, OutcomeUnknown: 5}
"""Exit status by error, where it is not that of a wrong setup."""


class Part(Protocol):
    """What a service adds to the frame."""

    @property
    def app(self) -> AsgiApp | None:
        """HTTP below the health endpoints."""
        ...

    def unready(self) -> str | None:
        """What is missing, in one line; None when the service can work."""
        ...

    async def drain(self, grace: float) -> None:
        """Stops taking work, finishes or hands back what is in hand within `grace` seconds."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A part that says more of itself at /readyz."""

    def about(self) -> dict[str, str]: ...


@runtime_checkable
class Measured(Protocol):
    """A part that has figures of its own for whoever reads the metrics."""

    async def samples(self) -> list[Sample]:
        """As they are now. Raises BusUnavailable."""
        ...


class Platform(NamedTuple):
    """What the frame gives to a part."""

    settings: Settings
    nc: NatsClient
    topology: Topology
    registry: NatsRegistry
    bus: NatsBus
    journal: Journal
    blobs: NatsBlobs
    health_url: str
    started_at: float
    clock: ServerClock
    meters: Meters

    def presence(
        self,
        *,
        agent: AgentCard | None = None,
        tool: ToolCard | None = None,
        sandbox: SandboxCard | None = None,
        revision: str = "",
        prompts: str = "",
        spec: str = "",
    ) -> Presence:
        """This replica's registry entry for a card."""
        return Presence(
            instance=self.settings.instance_name(),
            host=socket.gethostname(),
            pid=os.getpid(),
            health=self.health_url,
            started_at=self.started_at,
            subjects=SUBJECTS,
            agent=agent,
            tool=tool,
            sandbox=sandbox,
            revision=revision,
            prompts=prompts,
            spec=spec,
        )


Start = Callable[[Platform], Awaitable[Part]]


def run(name: str, settings: Settings, start: Start) -> int:
    """Runs a service until it is told to stop; returns the exit status."""
    configure_logging(name, settings.instance_name(), settings.log_level, settings.log_format)
    try:
        metrics, bounds = read_metrics_settings(), read_http_bounds()
        cut_off_children()
        listener = _listen(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(_State(name, settings, metrics), settings, start, listener, bounds))
    except CadreError as error:
        # One line in the form of all errors of the command line, for whoever started it from there.
        cannot = "go on" if isinstance(error, ConnectionGivenUp) else "start"
        print(f"cadre: {name} cannot {cannot}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return _STATUS.get(type(error), 2 if isinstance(error, SetupError) else 1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not to be had on Windows
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _listen(settings: Settings) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise SetupError(
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror});"
            " choose another --port (CADRE_PORT), 0 for any free one"
        ) from error
    return listener


async def _serve(
    state: _State, settings: Settings, start: Start, listener: socket.socket, bounds: HttpBounds
) -> int:
    name, stop = state.name, _stop_on_signals()
    host, port = listener.getsockname()[:2]
    health_url = f"http://{host}:{port}"
    server = _Server(
        uvicorn.Config(
            with_health(state.dispatch, state.unready, state.about, state.measuring.answer),
            http=bounded_protocol(bounds),
            log_config=None,
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=2,
        )
    )
    http = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    log.info("%s: health at %s/healthz", name, health_url)
    status = 0

    def give_up(reason: str) -> None:
        state.given_up = reason
        stop.set()

    working = asyncio.create_task(_work(state, settings, start, health_url, give_up), name=name)
    stopped = asyncio.create_task(stop.wait())
    watching = asyncio.create_task(watch_for_hang(settings.hang_seconds), name="hang watch")
    try:
        await asyncio.wait({working, stopped, http}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and not stop.is_set():
            working.result()  # raises why it could not start
            await asyncio.wait({stopped, http}, return_when=asyncio.FIRST_COMPLETED)
        if state.given_up:
            raise ConnectionGivenUp(state.given_up)
        log.info("%s: draining for up to %g s", name, settings.drain_seconds)
    finally:
        if not working.done():
            working.cancel()
        stopped.cancel()
        status = await _close(state, settings)
        server.should_exit = True
        await asyncio.wait({http}, timeout=CLOSE_WITHIN)
        watching.cancel()
    log.info("%s: stopped", name)
    return status


class _State:
    """What the health endpoints and the end of the process know of the part."""

    def __init__(self, name: str, settings: Settings, metrics: MetricsSettings) -> None:
        self.name = name
        self.meters = Meters(on=metrics.on)
        # A trace says `manager` of what `agent manager` did.
        service = name.removeprefix("agent ")
        self.measuring = Measuring(metrics, self.meters, service, settings.instance_name(), self.samples)
        self.platform: Platform | None = None
        self.part: Part | None = None
        self.store: StoreWatch | None = None
        self.watching: asyncio.Task[None] | None = None
        self.draining = False
        self.given_up = ""
        """Why the connection to NATS is closed for good, without anybody here having wanted that."""

    def unready(self) -> str | None:
        if self.draining:
            return "draining"
        if self.platform is None or not self.platform.nc.is_connected:
            return "not connected to NATS"
        if (problem := self.platform.clock.problem()) is not None:
            return problem
        if self.store is not None and (trouble := self.store.trouble()) is not None:
            return trouble
        return self.part.unready() if self.part is not None else "starting"

    def about(self) -> dict[str, str]:
        full = self.store.full() if self.store is not None else None
        own: dict[str, str] = self.part.about() if isinstance(self.part, Telling) else {}
        return own if full is None else own | {"store": full}

    async def samples(self) -> list[Sample]:
        if self.platform is None:
            return []
        found = [Sample(CLOCK_SKEW, self.platform.clock.skew)]
        if self.store is not None:
            states = self.store.states().items()
            found += [Sample(STORE_TROUBLE, float(there), {STORE_STATE: state}) for state, there in states]
        if isinstance(self.part, Measured) and (self.store is None or self.store.lost() is None):
            found += await self.part.samples()
        return found

    async def dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        if self.part is None:
            detail = f"{self.name} cannot work yet: {self.unready()}"
            await send_problem(send, 503, "bus-unavailable", detail)
        elif self.store is not None and (lost := self.store.lost()) is not None:
            # What is remembered here is of a store that is not there any more.
            await send_problem(send, 503, "bus-unavailable", lost)
        elif self.part.app is None:
            await send_problem(send, 404, "not-found", f"{self.name} serves /healthz and /readyz only")
        else:
            await self.part.app(scope, receive, send)


async def open_platform(
    name: str,
    settings: Settings,
    health_url: str = "",
    meters: Meters | None = None,
    given_up: Callable[[str], None] | None = None,
) -> Platform:
    """Connects (waiting for the server), provisions, and begins to listen to the registry."""
    address = partial(nats_now, settings)
    nc = await connect(settings, f"cadre {name}", given_up=given_up, address=address)
    # Streams may be without a leader for a moment after a server's start.
    topology = await retry(lambda: provision(nc, settings), pauses=EVERY_SECOND, log=log)
    clock = ServerClock(settings.clock_skew_seconds)
    await retry(lambda: clock.measure(nc, topology.stream(0)), pauses=EVERY_SECOND, log=log)
    if (problem := clock.problem()) is not None:
        await nc.close()
        raise SetupError(problem)
    blobs = NatsBlobs(nc, topology, clock)
    platform = Platform(
        settings=settings,
        nc=nc,
        topology=topology,
        registry=NatsRegistry(nc, topology, clock),
        bus=NatsBus(nc, topology, blobs),
        journal=NatsJournal(nc, topology, blobs),
        blobs=blobs,
        health_url=health_url,
        started_at=clock.now(),
        clock=clock,
        meters=meters if meters is not None else Meters(on=False),
    )
    await platform.registry.start()
    return platform


async def _work(
    state: _State, settings: Settings, start: Start, health_url: str, give_up: Callable[[str], None]
) -> None:
    await state.measuring.start()
    state.platform = await open_platform(state.name, settings, health_url, state.meters, give_up)
    await await_older_gone(state.platform.registry)
    store = StoreWatch(state.platform.nc, state.platform.topology)
    state.watching = await retry(store.start, pauses=EVERY_SECOND, log=log)
    state.store = store
    state.part = await start(state.platform)
    calm_collector()
    log.info("%s: ready", state.name)


def calm_collector() -> None:
    """Spares the garbage collector what lives as long as the process; the rest is mostly freed without it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


async def _close(state: _State, settings: Settings) -> int:
    """Says goodbye, drains, closes; each as far as it can be done. Returns the exit status."""
    state.draining = True
    if state.watching is not None:
        state.watching.cancel()
    platform, part = state.platform, state.part
    if platform is None:
        return 0
    nc = platform.nc
    done = [not nc.is_connected or await _done(nc, platform.registry.withdraw(), CLOSE_WITHIN)]
    if part is not None and not nc.is_closed:
        grace = settings.drain_seconds
        done.append(await _done(nc, part.drain(grace), grace + CLOSE_WITHIN))
    if not all(done):
        log.warning("%s: not drained in full; what is left is delivered again", state.name)
    await state.measuring.stop(LAST_FIGURES_WITHIN)
    await _done(nc, platform.registry.stop(), CLOSE_WITHIN)
    await _done(nc, nc.close(), CLOSE_WITHIN)
    return 0 if all(done) else 1


async def _done(nc: NatsClient, step: Awaitable[None], within: float) -> bool:
    try:
        await asyncio.wait_for(step, within)
    except (CadreError, TimeoutError) as error:
        log.warning("while stopping: %s", error or f"not done within {within:g} s")
    except RuntimeError as error:
        # What uvloop says of a socket that is gone; with a living connection it is somebody's defect.
        if nc.is_connected:
            raise
        log.warning("while stopping, without a connection to NATS: %s", error)
    else:
        return True
    return False


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the frame decides when it is time to go."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
