"""The loop of a peer's program: it reads how much to play from its standard input, a JSON object a line, and answers
with what it took. It runs in the peers' environment, which has nothing of Cadre."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

MODEL_ANSWER = "What is left to do is known now. " * 4
TASK = "Please find out what the others have left to do. " * 4


def serve(play: Callable[[int, int], list[float]]) -> None:
    """Answer each line `{"count", "in_flight"}` with `{"seconds": [...], "took"}`, until the input ends.

    play: does so many operations, so many at a time; returns the seconds of each.
    """
    # What a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        began = time.perf_counter()
        seconds = play(wanted["count"], wanted["in_flight"])
        print(json.dumps({"seconds": seconds, "took": time.perf_counter() - began}), file=answers, flush=True)


def in_threads(operation: Callable[[], object]) -> Callable[[int, int], list[float]]:
    """Return `play` for an operation that blocks."""

    def timed(_: int) -> float:
        began = time.perf_counter()
        operation()
        return time.perf_counter() - began

    def play(count: int, in_flight: int) -> list[float]:
        if in_flight == 1:
            return [timed(number) for number in range(count)]
        with ThreadPoolExecutor(in_flight) as pool:
            return list(pool.map(timed, range(count)))

    return play


def in_tasks(
    loop: asyncio.AbstractEventLoop, operation: Callable[[], Awaitable[object]]
) -> Callable[[int, int], list[float]]:
    """Return `play` for an operation of this event loop."""

    async def played(count: int, in_flight: int) -> list[float]:
        seconds: list[float] = []
        numbers = iter(range(count))

        async def one_after_another() -> None:
            for _ in numbers:
                began = time.perf_counter()
                await operation()
                seconds.append(time.perf_counter() - began)

        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        return seconds

    return lambda count, in_flight: loop.run_until_complete(played(count, in_flight))
