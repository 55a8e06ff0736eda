"""Connecting to NATS, and saying so when that is not possible."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import ssl
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import nats.errors
from nats.aio.client import Client as NatsClient

from cadre.adapters.nats.connection import keys, requests
from cadre.adapters.nats.connection.client import Client
from cadre.errors import BusUnavailable, SettingError
from cadre.protocol.nats_addresses import addresses, told
from cadre.settings import Settings

__all__ = ["Client", "connect", "settled", "since_return"]

log = logging.getLogger("cadre.nats")

_TELL_EVERY = 2.0

_UNKNOWN = "authorization violation"
_REFUSED = re.compile(r'permissions violation for publish to "(.*)"')

_returned: WeakKeyDictionary[NatsClient, float] = WeakKeyDictionary()


def since_return(nc: NatsClient) -> float:
    """Seconds since the server was there again, whoever else is back by now; infinite where it never was away."""
    return time.monotonic() - _returned.get(nc, -math.inf)


async def settled(nc: NatsClient) -> None:
    """Returns once the server has dealt with all that was sent to it before: subscriptions hold, refusals are here.

    `flush` writes its ping past what the client's writer still holds; one that is sent after the answer to a first
    does not. Raises nats.errors.Error.
    """
    await nc.flush()
    await nc.flush()


async def connect(
    settings: Settings, name: str, *, wait: bool = True, given_up: Callable[[str], None] | None = None
) -> Client:
    """Connects; a lost connection is taken up again for ever, but after an error that ends it for good: `given_up` is
    called with that.

    While the server is not there: with `wait`, a warning every two seconds; without, raises BusUnavailable.
    Raises SettingError when it is there and will not have this user, or is not known to be the right one.
    """

    def on_given_up(reason: str) -> None:
        if begun:
            log.critical("the connection to NATS is closed for good: %s", reason)
            if given_up is not None:
                given_up(reason)

    nc = Client(on_given_up)
    options = keys.options(nc, settings)
    hopeless: asyncio.Future[SettingError] = asyncio.get_running_loop().create_future()
    troubles: list[Exception] = []
    begun = False

    async def on_error(error: Exception) -> None:
        troubles[:] = [error]
        if (why := _why_hopeless(error, settings)) is not None and not hopeless.done():
            hopeless.set_result(why)
            if begun:
                log.error("%s; then start this process again", why)
        if refused := _REFUSED.search(str(error)):
            requests.refuse(nc, refused[1])
        if nc.is_connected:
            log.warning("NATS: %s", error or type(error).__name__)

    async def on_disconnect() -> None:
        requests.give_up_all(nc)
        if not nc.is_closed:
            log.warning("connection to NATS lost; reconnecting")

    async def on_reconnect() -> None:
        nonlocal hopeless
        hopeless = asyncio.get_running_loop().create_future()
        _returned[nc] = time.monotonic()
        log.info("connected to NATS again")

    def reason() -> str:
        return (
            f"no NATS server at {told(settings.nats_url)} ({troubles[0] if troubles else 'no answer'});"
            " start one with `cadre up`, or set CADRE_NATS_URL"
        )

    connecting = asyncio.create_task(
        nc.connect(
            addresses(settings.nats_url),
            name=name,
            connect_timeout=5,
            max_reconnect_attempts=-1 if wait else 1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type]  # seconds, any number will do
            ping_interval=20,
            error_cb=on_error,
            disconnected_cb=on_disconnect,
            reconnected_cb=on_reconnect,
            pending_size=16 * 1024 * 1024,
            **options,
        )
    )
    try:
        while not connecting.done():
            waited_for: set[asyncio.Future[Any]] = {connecting, hopeless}
            await asyncio.wait(waited_for, timeout=_TELL_EVERY, return_when=asyncio.FIRST_COMPLETED)
            if hopeless.done() and not nc.is_connected:
                raise hopeless.result()
            if not connecting.done() and wait:
                log.warning("%s; still trying", reason())
        connecting.result()
        begun = True
        if troubles:
            _returned[nc] = time.monotonic()
    except (OSError, nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable("connecting", reason()) from error
    finally:
        connecting.cancel()
    return nc


def _why_hopeless(error: Exception, settings: Settings) -> SettingError | None:
    """What to do about an error that waiting does not cure."""
    url = told(settings.nats_url)
    if isinstance(error, nats.errors.AuthorizationError) or _UNKNOWN in str(error).lower():
        key = settings.nats_credentials
        what = (
            f"does not know the key in {key}: have it read the file that `cadre auth init` wrote, or name the right"
            " key in CADRE_NATS_CREDENTIALS"
            if key
            else "asks for a user: name the file of this service's key in CADRE_NATS_CREDENTIALS (`cadre auth init`)"
        )
        return SettingError(f"the NATS server at {url} {what}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return SettingError(
            f"the certificate of the NATS server at {url} is not trusted ({error.verify_message}): name the file of"
            " its certificate authority in CADRE_NATS_TLS_CA, and the server as the certificate does"
        )
    return None
