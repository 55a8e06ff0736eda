"""Connects to NATS, and says so when that is not possible."""

import asyncio
import logging
import math
import re
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import nats.errors
from nats.aio.client import Client

from cadre.adapters.nats.connection import keys, requests
from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.silence import silence_of
from cadre.delivery.retry import NO_SETUP, Setup
from cadre.errors import BusUnavailable, NotSetUpYet, SettingError, SetupError
from cadre.protocol.nats_users import addresses, redacted
from cadre.settings import Settings

__all__ = ["NatsClient", "connect", "seconds_since_return", "settled"]

log = logging.getLogger("cadre.nats")

_WARN_EVERY_SECONDS = 2.0

_KEY_IS_READ = "the key is read again at each try"
_UNKNOWN = "authorization violation"
_NO_CONNECTION_LEFT = re.compile("maximum (?:account active )?connections exceeded")
_REFUSED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')

_returned: WeakKeyDictionary[Client, float] = WeakKeyDictionary()


def seconds_since_return(nc: Client) -> float:
    """Return the seconds since this client found the server again, even if other clients have not; infinite if the
    server was never away."""
    return time.monotonic() - _returned.get(nc, -math.inf)


async def settled(nc: Client) -> None:
    """Return once the server has dealt with all that was sent to it before: subscriptions hold, refusals are here.

    `flush` writes its ping past what the client's writer still holds; one that is sent after the answer to a first
    does not. Raises nats.errors.Error.
    """
    await nc.flush()
    await nc.flush()


async def connect(
    settings: Settings,
    name: str,
    *,
    wait: bool = True,
    given_up: Callable[[str], None] | None = None,
    address: Callable[[], str] | None = None,
    setup: Setup = NO_SETUP,
) -> NatsClient:
    """Connect, and reconnect forever. After an error that ends the connection for good `given_up` is called with the
    reason. `address` returns the server's current address before each further try.

    While the server is not there: with `wait`, a warning every two seconds; without, raises BusUnavailable. A server
    that does not know this service's key has the time of `setup` to hear of it. Raises NotSetUpYet when it still does
    not know it then, SettingError when it asks for a user or its certificate is not trusted.
    """
    nc = await _Connecting(settings, name, given_up, address).run(wait, setup)
    nc.setup = setup
    return nc


class _Connecting:
    """One connection, from its first try to its last: what its client reports, and what follows from that.

    It is being made until `_is_open`; from then on it is up, or lost and being taken up again by the client. Either
    time a refusal that waiting does not cure makes it hopeless.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        given_up: Callable[[str], None] | None,
        address: Callable[[], str] | None,
    ) -> None:
        self._settings = settings
        self._name = name
        self._given_up = given_up
        self._address = address
        self._url = settings.nats_url
        self._nc = NatsClient(self._on_given_up)
        self._options = keys.options(self._nc, settings)
        if settings.nats_credentials and not Path(settings.nats_credentials).is_relative_to("/proc"):
            # A key that is renewed while the process runs: the server ends the connection, and it comes back with this.
            # One that was handed over without a file stays what it is.
            self._nc.read_seed = partial(keys.seed_now, self._nc, settings)
        self._is_open = False
        self._trouble: Exception | None = None
        self._hopeless: asyncio.Future[SetupError] = asyncio.get_running_loop().create_future()

    async def run(self, wait: bool, setup: Setup) -> NatsClient:
        """Return the client once it is connected. Raises BusUnavailable, NotSetUpYet, SettingError."""
        connecting = asyncio.create_task(self._connect(wait))
        begun, warn_at = time.monotonic(), 0.0
        try:
            while not connecting.done():
                ends: set[asyncio.Future[Any]] = {connecting, self._hopeless}
                await asyncio.wait(ends, timeout=_WARN_EVERY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                lack = ""
                if self._hopeless.done() and not self._nc.is_connected:
                    why = self._hopeless.result()
                    is_early = time.monotonic() - begun < setup.seconds
                    if not (wait and is_early and isinstance(why, NotSetUpYet)):
                        raise why
                    lack, self._hopeless = str(why), asyncio.get_running_loop().create_future()
                    setup.waits(lack)
                if not connecting.done() and wait and time.monotonic() >= warn_at:
                    log.warning("%s; still trying", lack or self._reason())
                    warn_at = time.monotonic() + _WARN_EVERY_SECONDS
            if (error := connecting.result()) is not None:
                raise BusUnavailable("connecting", self._reason()) from error
            setup.waits("")
        finally:
            connecting.cancel()
        self._is_open = True
        if self._trouble is not None:
            _returned[self._nc] = time.monotonic()
        return self._nc

    async def _connect(self, wait: bool) -> Exception | None:
        """Return why it cannot connect, also when it is cancelled: a task that others end may not fail."""
        try:
            await self._nc.connect(
                addresses(self._url),
                name=self._name,
                connect_timeout=5,
                max_reconnect_attempts=-1 if wait else 1,
                reconnect_time_wait=0.25,  # type: ignore[arg-type]  # seconds, any number will do
                ping_interval=20,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnect,
                reconnected_cb=self._on_reconnect,
                pending_size=16 * 1024 * 1024,
                **self._options,
            )
        except (OSError, nats.errors.Error, TimeoutError) as error:
            return error
        return None

    async def _on_error(self, error: Exception) -> None:
        self._trouble = error
        if (why := _why_hopeless(error, self._settings)) is not None and not self._hopeless.done():
            self._hopeless.set_result(why)
            if self._is_open:
                has_key = self._nc.read_seed is not None and not isinstance(error, ssl.SSLCertVerificationError)
                log.error("%s; %s", why, _KEY_IS_READ if has_key else "then start this process again")
        if refused := _REFUSED.search(str(error)):
            (requests.refuse if refused[1] == "publish" else requests.refuse_answers)(self._nc, refused[2])
        if self._nc.is_connected:
            log.warning("NATS: %s", error or type(error).__name__)
        else:
            self._follow()

    def _follow(self) -> None:
        """Have the client try the server's new address, if it has one."""
        if self._address is not None and not self._nc.is_closed and (url := self._address()) != self._url:
            self._url = url
            self._nc.set_server_pool(addresses(url))

    async def _on_disconnect(self) -> None:
        requests.give_up_all(self._nc)
        silence_of(self._nc).clear()
        if not self._nc.is_closed:
            log.warning("connection to NATS lost; reconnecting")
            self._follow()

    async def _on_reconnect(self) -> None:
        self._hopeless = asyncio.get_running_loop().create_future()
        _returned[self._nc] = time.monotonic()
        log.info("connected to NATS again")

    def _on_given_up(self, reason: str) -> None:
        if self._is_open:
            log.critical("the connection to NATS is closed for good: %s", reason)
            if self._given_up is not None:
                self._given_up(reason)

    def _reason(self) -> str:
        trouble = str(self._trouble or "no answer")
        if _NO_CONNECTION_LEFT.search(trouble):
            return (
                f"the NATS server at {redacted(self._url)} has no connection left ({trouble}): raise max_connections in"
                " its configuration, or end other clients"
            )
        if not trouble:
            trouble = f"{type(self._trouble).__name__}: what answers there does not speak NATS"
        return f"no NATS server at {redacted(self._url)} ({trouble}); start one with `cadre up`, or set CADRE_NATS_URL"


def _why_hopeless(error: Exception, settings: Settings) -> SetupError | None:
    """Return what to do about an error that trying again does not cure; None for any other. Of a key that the server
    does not know, NotSetUpYet."""
    url = redacted(settings.nats_url)
    if isinstance(error, nats.errors.AuthorizationError) or _UNKNOWN in str(error).lower():
        key = settings.nats_credentials
        what = (
            f"does not know the key in {key}: have it read the file that `cadre auth init` wrote, or name the right"
            " key in CADRE_NATS_CREDENTIALS"
            if key
            else "asks for a user: name the file of this service's key in CADRE_NATS_CREDENTIALS (`cadre auth init`)"
        )
        return (NotSetUpYet if key else SettingError)(f"the NATS server at {url} {what}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return SettingError(
            f"the certificate of the NATS server at {url} is not trusted ({error.verify_message}): name the file of"
            " its certificate authority in CADRE_NATS_TLS_CA, and the server as the certificate does"
        )
    return None
