"""Connecting to NATS, and saying so when that is not possible."""

from __future__ import annotations

import asyncio
import logging

import nats.errors
from nats.aio.client import Client

from cadre.adapters import requests
from cadre.errors import BusUnavailable
from cadre.settings import Settings

__all__ = ["Client", "connect"]

log = logging.getLogger("cadre.nats")

_TELL_EVERY = 2.0


async def connect(settings: Settings, name: str, *, wait: bool = True) -> Client:
    """Connects; a lost connection is taken up again for ever.

    While the server is not there: with `wait`, a warning every two seconds; without, raises BusUnavailable.
    """
    nc = Client()
    troubles: list[Exception] = []

    async def on_error(error: Exception) -> None:
        troubles[:] = [error]
        if nc.is_connected:
            log.warning("NATS: %s", error or type(error).__name__)

    async def on_disconnect() -> None:
        requests.give_up_all(nc)
        if not nc.is_closed:
            log.warning("connection to NATS lost; reconnecting")

    async def on_reconnect() -> None:
        log.info("connected to NATS again")

    def reason() -> str:
        return (
            f"no NATS server at {settings.nats_url} ({troubles[0] if troubles else 'no answer'});"
            " start one with `cadre up`, or set CADRE_NATS_URL"
        )

    connecting = asyncio.create_task(
        nc.connect(
            [url.strip() for url in settings.nats_url.split(",")],
            name=name,
            connect_timeout=5,
            max_reconnect_attempts=-1 if wait else 1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type]  # seconds, any number will do
            ping_interval=20,
            error_cb=on_error,
            disconnected_cb=on_disconnect,
            reconnected_cb=on_reconnect,
            pending_size=16 * 1024 * 1024,
        )
    )
    try:
        while not connecting.done():
            await asyncio.wait({connecting}, timeout=_TELL_EVERY)
            if not connecting.done() and wait:
                log.warning("%s; still trying", reason())
        connecting.result()
    except (OSError, nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable("connecting", reason()) from error
    finally:
        connecting.cancel()
    return nc
