"""Run every service process: connect, serve health, run its part, drain on SIGTERM, end when the event loop hangs.

`/healthz` answers while the event loop turns; `/readyz` only while NATS is connected and the part is
ready. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, NamedTuple

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from cadre.delivery import codec
from cadre.errors import BusUnavailable, CadreError, OutcomeUnknown, SetupError
from cadre.service.health import AsgiApp, Unready, problem_document, with_health
from cadre.service.metrics import Measuring
from cadre.service.platform import Start
from cadre.service.served import CLOSE_WITHIN, ServedAccount, ServiceProcess, Serving
from cadre.settings import HttpBounds, MetricsSettings, Settings, read_http_bounds, read_metrics_settings
from cadre.telemetry.logs import configure_logging, hang_output, log_all_output
from cadre.telemetry.metrics.meters import Meters

log = logging.getLogger("cadre.service")

LAST_FIGURES_WITHIN = 2.0

_TURNS = 6
"""The loop has so many turns to say that it is alive."""

_HANG_LOGGED_WITHIN = 1.0


class ConnectionGivenUp(CadreError):
    """The connection to NATS is closed for good."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the connection to NATS was closed for good ({reason}); start this process again")


class HttpServerEnded(CadreError):
    """The server of the process's HTTP endpoints has ended although it was not asked to."""

    def __init__(self, reason: BaseException | None) -> None:
        super().__init__(
            f"its HTTP server has ended ({reason!r}); start this process again"
            if reason is not None
            else "its HTTP server has ended; start this process again"
        )


_STATUS: dict[type[CadreError], int] = {BusUnavailable: 5, ConnectionGivenUp: 5, OutcomeUnknown: 5}
"""Exit status by error, where it is not that of a wrong setup."""


class Called(NamedTuple):
    """The name of a process, and the agents that it hosts."""

    name: str
    agents: Sequence[str] = ()

    @property
    def service(self) -> str:
        """Return the name in logs and metrics: an agent's own, as in spans. A process of several is `agents` in what is
        about none of them, as one of tools is `tools`."""
        if len(self.agents) == 1:
            return self.agents[0]
        return "agents" if self.agents else self.name


def _as_it_is(app: AsgiApp) -> AsgiApp:
    return app


def run(
    name: str,
    settings: Settings,
    start: Start,
    agents: Sequence[str] = (),
    *,
    front: Callable[[AsgiApp], AsgiApp] = _as_it_is,
) -> int:
    """Run a service on the account of its settings until it is stopped; return the exit status. `agents` are
    those that it hosts; `front` returns what requests come to first."""
    return run_serving(Called(name, agents), settings, lambda process: ServedAccount(process, start), front=front)


def run_serving(
    called: Called,
    settings: Settings,
    serve: Callable[[ServiceProcess], Serving],
    *,
    front: Callable[[AsgiApp], AsgiApp] = _as_it_is,
) -> int:
    """Run what `serve` makes until it is stopped; return the exit status. `front` returns what requests come to
    first."""
    configure_logging(called.service, settings.instance_name(), settings.log_level, settings.log_format)
    log_all_output()
    try:
        metrics, bounds = read_metrics_settings(), read_http_bounds()
        codec.close()  # before there is a second thread
        cut_off_children()
        listener = _listen(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(called, settings, metrics, serve, front, listener, bounds))
    except CadreError as error:
        # One line in the form of all errors of the command line, for users who started it from there.
        cannot = "go on" if isinstance(error, ConnectionGivenUp | HttpServerEnded) else "start"
        print(
            f"cadre: {called.name} cannot {cannot}: {' '.join(str(error).split())}",
            file=sys.stderr,
            flush=True,
        )
        return _STATUS.get(type(error), 2 if isinstance(error, SetupError) else 1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not available on Windows
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


async def _serve(  # noqa: PLR0913 - a process has so many parts
    called: Called,
    settings: Settings,
    metrics: MetricsSettings,
    serve: Callable[[ServiceProcess], Serving],
    front: Callable[[AsgiApp], AsgiApp],
    listener: socket.socket,
    bounds: HttpBounds,
) -> int:
    name, agents = called
    stop, given_up = _stop_on_signals(), list[str]()
    health_url = "http://{}:{}".format(*listener.getsockname()[:2])

    def give_up(reason: str) -> None:
        given_up.append(reason)
        stop.set()

    meters = Meters(on=metrics.on)
    serving = serve(ServiceProcess(name, settings, meters, health_url, give_up))
    instance = settings.instance_name()
    measuring = Measuring(metrics, meters, called.service, instance, serving.samples, agents)
    is_draining = False

    def unready() -> Unready | None:
        return Unready("draining", "draining") if is_draining else serving.unready()

    app = front(serving.front(with_health(serving.dispatch, unready, serving.about, measuring.answer)))
    server = HttpServer(
        uvicorn.Config(
            app,
            http=bounded_protocol(bounds),
            log_config=None,
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=2,
        )
    )
    http = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    log.info("%s: health at %s/healthz", name, health_url)
    drained = True
    working = asyncio.create_task(_work(name, serving, measuring), name=name)
    stopped = asyncio.create_task(stop.wait())
    watching = asyncio.create_task(watch_for_hang(settings.hang_seconds), name="hang watch")
    try:
        await asyncio.wait({working, stopped, http}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and not stop.is_set():
            working.result()  # raises why it could not start
            await asyncio.wait({stopped, http}, return_when=asyncio.FIRST_COMPLETED)
        if given_up:
            raise ConnectionGivenUp(given_up[0])
        _raise_if_ended(name, http)
        log.info("%s: draining for up to %g s", name, settings.drain_seconds)
    finally:
        if not working.done():
            working.cancel()
        stopped.cancel()
        is_draining = True
        drained = await serving.drain()
        await measuring.stop(LAST_FIGURES_WITHIN)
        await serving.close()
        server.should_exit = True
        await asyncio.wait({http}, timeout=CLOSE_WITHIN)
        watching.cancel()
    log.info("%s: stopped", name)
    return 0 if drained else 1


def _raise_if_ended(name: str, http: asyncio.Task[None]) -> None:
    """Raise HttpServerEnded if the server has: a process whose probes and API are gone must not look as if somebody
    had stopped it."""
    if http.done():
        reason = None if http.cancelled() else http.exception()
        log.critical("%s: the HTTP server has ended", name, exc_info=reason)
        raise HttpServerEnded(reason)


async def _work(name: str, serving: Serving, measuring: Measuring) -> None:
    await measuring.start()
    await serving.open()
    calm_collector()
    log.info("%s: ready", name)


def calm_collector() -> None:
    """Spare the garbage collector what lives as long as the process; the rest is mostly freed without it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


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


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the process decides when it is time to go."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def watch_for_hang(seconds: float) -> None:
    """Have the process end, with a traceback of its current work on stderr or in its log, once the loop has not turned
    for so long; 0 disables this.

    The watch needs no Python: one computation in C, such as a power of large numbers, cannot hold it up.
    """
    if not seconds:
        return
    logged, nowhere = hang_output(), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if logged is not None:
            faulthandler.register(signal.SIGALRM, logged)
        while True:
            if logged is None:
                faulthandler.dump_traceback_later(seconds, exit=True)
            else:
                # The log is written by another process, which in a container ends with this one.
                signal.setitimer(signal.ITIMER_REAL, seconds)
                faulthandler.dump_traceback_later(seconds + _HANG_LOGGED_WITHIN, exit=True, file=nowhere)
            await asyncio.sleep(seconds / _TURNS)
    except (AttributeError, OSError, RuntimeError, ValueError) as error:
        log.warning("no watchdog checks this process for hangs: %s", error)  # there is no stderr
    finally:
        faulthandler.cancel_dump_traceback_later()
        if logged is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(nowhere)


_MIN_BODY_BYTES_PER_SECOND = 1024


def bounded_protocol(bounds: HttpBounds) -> type[asyncio.Protocol]:
    """Return the protocol of one server's connections."""

    class Bounded(BoundedConnection):
        limits = bounds
        peers: ClassVar[Counter[str]] = Counter()

    return Bounded


class BoundedConnection(H11Protocol):
    """A connection that is closed when its peer has too many, or sends too slowly: it answers 503 or 408 first."""

    limits: ClassVar[HttpBounds]
    peers: ClassVar[Counter[str]]
    """Open connections by address, over all connections of the server."""

    _peer = ""
    _is_refused = False
    _timer: asyncio.TimerHandle | None = None
    _awaited: tuple[RequestResponseCycle | None, bool] | None = None
    """The target of the timer: the head of a request, or the body of the current one (True)."""
    _received_bytes = 0
    """Since the timer was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.peers[self._peer] += 1
        if self.peers[self._peer] > self.limits.peer_connections:
            most = self.limits.peer_connections
            self._refuse(503, "busy", f"{self._peer} has {most} connections here already (CADRE_HTTP_PEER_CONNECTIONS)")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        self.peers[self._peer] -= 1
        if not self.peers[self._peer]:
            del self.peers[self._peer]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._received_bytes += len(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch()

    def _watch(self) -> None:
        """Set the timer for what the peer owes now, unless it is set for that already."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            awaited = (cycle, False)
        elif cycle.more_body:
            awaited = (cycle, True)
        else:
            self._unset_timer()
            return
        if awaited != self._awaited:
            self._set_timer(awaited)

    def _set_timer(self, awaited: tuple[RequestResponseCycle | None, bool]) -> None:
        self._unset_timer()
        self._awaited, self._received_bytes = awaited, 0
        seconds = self.limits.body_seconds if awaited[1] else self.limits.header_seconds
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._awaited = None

    def _time_out(self) -> None:
        awaited, self._timer = self._awaited, None
        if awaited is None or self.transport.is_closing():
            return
        if not awaited[1]:
            self._refuse(408, "request-timeout", "the head of the request did not come in time")
        elif self.cycle.more_body and not self.cycle.response_complete:
            wanted = self.limits.body_seconds * _MIN_BODY_BYTES_PER_SECOND
            # While reading is paused it is the server that is slow.
            if self.flow.read_paused or self._received_bytes >= wanted:
                self._set_timer(awaited)
            else:
                self._refuse(408, "request-timeout", "the body of the request comes too slowly, or not at all")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._is_refused = True
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_answer(status, problem_document(status, code, detail)))
        self.transport.close()


def _answer(status: int, problem: dict[str, Any]) -> bytes:
    body = json.dumps(problem).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


_DESCRIPTORS = "/dev/fd"

_LOOPS = {f"anon_inode:[{kind}]" for kind in ("eventpoll", "io_uring")}
"""Linux's names for the file on which an event loop waits. Parent and child would share it: a child cannot use the
loop."""


_STOPPING = {signal.SIGTERM, signal.SIGINT}


class _Masks(threading.local):
    """The signals that a thread had blocked before its fork: several threads may fork at once."""

    blocked: Collection[int] = ()


_masks = _Masks()


def cut_off_children() -> None:
    """Make every later fork cut its child off from the network sockets, event loops and signals of this process.

    Pipes and socket pairs stay, by which a pool talks to its processes. The signals that stop a service are blocked
    from before the fork until the child has let go: until then the child's handler would write into the wakeup pipe
    that it shares with its parent, and the service would stop in its place.
    """
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_let_go)


def _block() -> None:
    _masks.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.blocked)


def _let_go() -> None:
    if signal.set_wakeup_fd(-1) >= 0:  # where the loop hears of signals
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _unblock()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in map(int, os.listdir(_DESCRIPTORS)):
        if _is_network(descriptor) or _is_loop(descriptor):
            # Not closed: an object of the parent's, once freed here, would close the file that has the number by then.
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _is_network(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        found = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False  # closed meanwhile: that of the listing itself
    with found:
        return found.family in (socket.AF_INET, socket.AF_INET6)


def _is_loop(descriptor: int) -> bool:
    try:
        return os.readlink(f"{_DESCRIPTORS}/{descriptor}") in _LOOPS
    except OSError:
        return False  # closed meanwhile, or a system where these are no links
