"""Connecting to NATS, and saying so when that is not possible."""

from __future__ import annotations

import asyncio
import logging

import nats
import nats.errors
from nats.aio.client import Client

from cadre.errors import BusUnavailable
from cadre.settings import Settings

log = logging.getLogger("cadre.nats")

_RETRY_SECONDS = 2.0


async def connect(settings: Settings, name: str, *, wait: bool = True) -> Client:
    """Connects; a lost connection is taken up again for ever.

    While the server is not there: with `wait`, one warning per try; without, raises BusUnavailable.
    """
    while True:
        try:
            return await nats.connect(
                settings.nats_url,
                name=name,
                connect_timeout=5,
                max_reconnect_attempts=-1 if wait else 3,
                reconnect_time_wait=0.25,
                ping_interval=20,
                allow_reconnect=wait,
                error_cb=_on_error,
                disconnected_cb=_on_disconnect if wait else None,
                reconnected_cb=_on_reconnect if wait else None,
                pending_size=16 * 1024 * 1024,
            )
        except (OSError, nats.errors.Error, asyncio.TimeoutError) as error:
            reason = (
                f"no NATS server at {settings.nats_url} ({error or type(error).__name__});"
                " start one with `cadre up`, or set CADRE_NATS_URL"
            )
            if not wait:
                raise BusUnavailable("connecting", reason) from error
            log.warning("%s; trying again in %g s", reason, _RETRY_SECONDS)
            await asyncio.sleep(_RETRY_SECONDS)


async def _on_error(error: Exception) -> None:
    log.warning("NATS: %s", error or type(error).__name__)


async def _on_disconnect() -> None:
    log.warning("connection to NATS lost; reconnecting")


async def _on_reconnect() -> None:
    log.info("connected to NATS again")
