"""Retry an operation while the bus, or another thing that it needs, is unavailable."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from cadre.errors import Fenced, NotSetUpYet, OutcomeUnknown, RetryableError

_log = logging.getLogger("cadre.retry")

GROWING = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0)
"""Pauses in seconds: doubled up to eight."""

EVERY_SECOND = (1.0,)

T = TypeVar("T")


class Setup(NamedTuple):
    """The wait of a process for what others set up for it."""

    seconds: float = 0.0
    """Seconds, from each first need of it."""
    waits: Callable[[str], None] = lambda _: None
    """Called with what is missing, and with "" once it is there."""


NO_SETUP = Setup()
"""Nothing is waited for."""


class _Early(RetryableError):
    """Something that others set up is missing, and there is time left to wait for it."""


async def retry(
    operation: Callable[[], Awaitable[T]],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    *,
    pauses: Sequence[float] = GROWING,
    doing: str = "",
    log: logging.Logger = _log,
    told: Callable[[str], None] = lambda _: None,
) -> T:
    """Return the result of `operation`, which is repeated as long as it raises RetryableError; any other error is
    raised.

    Between the tries it sleeps for `pauses` seconds, the last of them again and again, and warns each time in `log`:
    `doing` says there what is tried. `told` hears what it waits for, and "" once it works. A handler that waits here,
    instead of handing its message back, keeps the count of the message's deliveries for crashes alone.
    """
    tries = 0
    while True:
        try:
            result = await operation()
        except RetryableError as error:
            pause = pauses[min(tries, len(pauses) - 1)]
            tries += 1
            log.warning("%s%s; trying again in %g s", f"{doing}: " if doing else "", error, pause)
            told(str(error))
            await sleep(pause)
        else:
            told("")
            return result


async def store_surely(
    store: Callable[[], Awaitable[int]],
    last: Callable[[], Awaitable[tuple[int, bytes] | None]],
    data: bytes,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """Return the sequence at which `data` is stored; `store` stores it if no other message is in its place.

    It is stored again, with the same fence, for as long as that raises RetryableError. Fenced behind an unknown outcome
    means that some write came through: `last`, the sequence and the data in that place, says whose. So an unknown
    outcome costs one read at most, however slow the server is, and the caller keeps what it has decided. Raises Fenced
    if another writer was first.
    """
    is_sent = False

    async def once() -> int:
        nonlocal is_sent
        try:
            return await store()
        except OutcomeUnknown:
            is_sent = True
            raise

    try:
        return await retry(once, sleep)
    except Fenced:
        if is_sent and (found := await retry(last, sleep)) is not None and found[1] == data:
            return found[0]
        raise


async def once_set_up(operation: Callable[[], Awaitable[T]], setup: Setup, log: logging.Logger = _log) -> T:
    """Return the result of `operation`, which is repeated every second as long as it raises RetryableError, and for
    the setup's seconds if it raises NotSetUpYet; any other error is raised."""
    until = time.monotonic() + setup.seconds

    async def patient() -> T:
        try:
            return await operation()
        except NotSetUpYet as error:
            if time.monotonic() >= until:
                raise
            raise _Early(str(error)) from error

    return await retry(patient, pauses=EVERY_SECOND, log=log, told=setup.waits)
