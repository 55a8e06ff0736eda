"""What a cluster cannot answer while it elects its leaders is asked again until it can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cadre.errors import RetryableError

log = logging.getLogger("cadre.nats")

T = TypeVar("T")

_PAUSE = 1.0

# No leader, or not enough servers yet; all that a stream or consumer needs is there, but not at this moment.
_PASSING = {10004, 10005, 10007, 10008, 10009, 10023, 10118, 10119, 10194, 10195}


def is_passing(error: dict[str, Any]) -> bool:
    """Whether an error of the JetStream API is that of a cluster in the middle of something."""
    return error.get("err_code") in _PASSING


async def until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks once a second, with a warning each time, until no RetryableError is raised; only for the idempotent."""
    while True:
        try:
            return await ask()
        except RetryableError as error:
            log.warning("%s; trying again", error)
            await asyncio.sleep(_PAUSE)
