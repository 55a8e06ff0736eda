"""Time limits for tests: they grow as the machine gets slower."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 60.0
"""The seconds that no healthy process takes on a machine at rest."""

_START_AT_REST_SECONDS = 0.25
_MEASURED_ANEW_AFTER_SECONDS = 30.0
_measured = (-_MEASURED_ANEW_AFTER_SECONDS, 1.0)


def patience(seconds: float = SECONDS) -> float:
    """Returns `seconds`, times as many as a start of Python takes longer now than on a machine at rest."""
    global _measured
    began = time.monotonic()
    if began - _measured[0] > _MEASURED_ANEW_AFTER_SECONDS:
        subprocess.run([sys.executable, "-c", "import cadre"], check=True)
        now = time.monotonic()
        _measured = now, max(1.0, (now - began) / _START_AT_REST_SECONDS)
    return seconds * _measured[1]


def eventually(
    condition: Callable[[], bool],
    *,
    what: str,
    within: float = SECONDS,
    state: Callable[[], object] = lambda: "",
) -> None:
    """Polls from outside what has no event to wait for, `within` seconds of a machine at rest, and longer on a slow
    one, which is measured only when they are over. Fails with what was awaited and the last state."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < within or waited < patience(within), f"not within {waited:.0f} s: {what}; {state()}"
        time.sleep(0.05)


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """Asks until the answer is true, for what is announced to no one; returns that answer."""
    async with asyncio.timeout(patience()):
        while not (answer := await ask()):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
    return answer
