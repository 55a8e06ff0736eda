"""Runs a blocking function in a daemon thread, so that a stuck one cannot keep the process alive.

A thread pool joins its threads when the interpreter ends; a tool that hangs would hang the shutdown.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T], name: str) -> T:
    """Run `function()` in a separate thread and await it. When cancelled, it leaves the thread running."""
    return await start_thread(function, name)


def start_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `function()` in a separate thread; the future has its outcome."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(how: Callable[[Any], None], outcome: object) -> None:
        if not future.done():
            how(outcome)

    def deliver(how: Callable[[Any], None], outcome: object) -> None:
        # A closed loop means that the process is ending: the outcome is no longer awaited.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, how, outcome)

    def work() -> None:
        try:
            result = context.run(function)
        except StopIteration as error:
            # A future refuses it: inside a coroutine it would look like a return.
            wrapped = RuntimeError(f"StopIteration: {error}")
            wrapped.__cause__ = error
            deliver(future.set_exception, wrapped)
        except BaseException as error:
            # Any error that ended the function belongs to the caller; here it would only end this thread.
            deliver(future.set_exception, error)
        else:
            deliver(future.set_result, result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future
