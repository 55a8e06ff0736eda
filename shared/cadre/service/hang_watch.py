"""Ends a process whose event loop does not turn any more: what hangs it then counts as what kills it."""

import asyncio
import faulthandler
import logging

log = logging.getLogger("cadre.service")

_TURNS = 6
"""The loop has so many turns to say that it is alive."""


async def watch_for_hang(seconds: float) -> None:
    """Has the process end, with the traceback of what it is at on stderr, once the loop has not turned for so long;
    0 has it never end.

    The watch is a thread without Python: one computation in C, such as a power of large numbers, cannot hold it up.
    """
    if not seconds:
        return
    try:
        while True:
            faulthandler.dump_traceback_later(seconds, exit=True)
            await asyncio.sleep(seconds / _TURNS)
    except (AttributeError, OSError, RuntimeError, ValueError) as error:
        log.warning("nobody watches whether this process hangs: %s", error)  # there is no stderr
    finally:
        faulthandler.cancel_dump_traceback_later()
