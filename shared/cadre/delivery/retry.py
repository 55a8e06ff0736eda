"""Waiting for a bus that fails: with pauses that grow, for as long as it takes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cadre.errors import RetryableError
from cadre.ports import Clock

log = logging.getLogger("cadre.agent")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 8.0

T = TypeVar("T")


async def patiently(clock: Clock, attempt: Callable[[int], Awaitable[T]]) -> T:
    """What `attempt` returns once it raises no RetryableError; it is told how often it has failed before.

    Waiting here, not handing the record back, keeps its count of deliveries for what kills workers.
    """
    tries, pause = 0, _FIRST_PAUSE
    while True:
        try:
            return await attempt(tries)
        except RetryableError as error:
            log.warning("%s; trying again in %.1f s", error, pause)
            await clock.sleep(pause)
            tries, pause = tries + 1, min(2 * pause, _LONGEST_PAUSE)
