"""An asyncio event loop with virtual time and many processes in it, whose order of steps a seed decides.

Each process keeps the order that asyncio promises within one loop; which process takes the next step is
chance. A process can be killed or stopped between any two steps: nothing of it runs any more.
"""

import asyncio
import contextvars
import heapq
import inspect
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

EPOCH = 1_700_000_000.0
"""Unix seconds at which every simulated world begins."""

MOST_STEPS = 400_000
LONGEST = 30 * 24 * 3600.0

T = TypeVar("T")


class Process:
    """Anything that lives and dies together: a worker, a client, or the world itself, which does neither."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        """As SIGSTOP does: it stays where it is, and does not know."""
        self.cut = False
        """Nothing that it sends arrives, nothing arrives at it."""
        self.skew = 0.0
        """Seconds that its clock is ahead."""
        self.mortal = False
        self.ready: deque[Handle] = deque()
        self.queued = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)

    def __repr__(self) -> str:
        return self.name


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def current_process() -> Process:
    """The process whose code is running."""
    return _process.get()


class Handle:
    """A step to take: asyncio.Handle and asyncio.TimerHandle in one."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process", "time")

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self.callback, self.args, self.context, self.process = callback, args, context, process
        self.is_cancelled = False
        self.time = 0.0

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.time


class Overseer(Protocol):
    """Looks on, and may lay hands on a process before its next step."""

    def before_step(self, process: Process) -> None: ...


class Stuck(Exception):
    """The world goes on and on without coming to rest."""


class Loop(asyncio.BaseEventLoop):
    """As much of an event loop as production code asks for: no files, no threads, no real time."""

    def __init__(self, chance: random.Random) -> None:
        self._draw = chance.random
        self._now = 0.0
        self._heap: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._runnable: list[Process] = []
        self.world = Process("world")
        self.steps = 0
        self.complaints: list[str] = []
        self.error: BaseException | None = None

    # --- running

    def run(self, overseer: Overseer) -> None:
        """Takes steps until nothing will ever happen again. Raises what `fail` was sent, Stuck."""
        asyncio._set_running_loop(self)
        try:
            while self._step(overseer):
                pass
        finally:
            asyncio._set_running_loop(None)

    def fail(self, error: BaseException) -> None:
        """Ends the run with the error, after the step in hand."""
        self.error = self.error or error

    def _step(self, overseer: Overseer) -> bool:
        runnable = self._runnable
        while not runnable:
            if not self._heap:
                return False
            self._let_time_pass()
        at = int(self._draw() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[at]
        if process.mortal:
            overseer.before_step(process)
        if process.alive and not process.stopped and process.ready:
            handle = process.ready.popleft()
            if not handle.is_cancelled:
                handle.context.run(handle.callback, *handle.args)
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Stuck(f"no rest after {MOST_STEPS} steps")
        if not (process.ready and process.alive) or process.stopped:
            process.queued = False
            runnable.remove(process)
        if self.error is not None:
            raise self.error
        return True

    def _let_time_pass(self) -> None:
        time, _, handle = heapq.heappop(self._heap)
        if handle.is_cancelled or not handle.process.alive:
            return
        self._now = max(time, self._now)
        if self._now > LONGEST:
            raise Stuck(f"no rest after {LONGEST / 86400:g} days")
        self._enqueue(handle)

    def _enqueue(self, handle: Handle) -> None:
        process = handle.process
        if process.alive:
            process.ready.append(handle)
            if not process.queued and not process.stopped:
                process.queued = True
                self._runnable.append(process)

    # --- processes

    def kill(self, process: Process) -> None:
        """Nothing of it runs again; its tasks are kept so that not even their clean-up does."""
        process.alive = False
        process.ready.clear()

    def halt(self, process: Process) -> None:
        process.stopped = True

    def resume(self, process: Process) -> None:
        process.stopped = False
        if process.alive and process.ready and not process.queued:
            process.queued = True
            self._runnable.append(process)

    def at(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        """Has the world itself do something `delay` seconds from now, no matter what process is running."""
        return self._later(self._now + delay, Handle(callback, args, self.world.context, self.world))

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.Task(work, loop=self, name="", context=process.context)
        process.tasks.append(task)
        return task

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = Handle(callback, args, context, context.get(_process) or self.world)
        self._enqueue(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        if context is None:
            context = contextvars.copy_context()
        return self._later(when, Handle(callback, args, context, context.get(_process) or self.world))

    def _later(self, when: float, handle: Handle) -> Handle:
        handle.time = when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name or "", context=context)
        current_process().tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return True  # nothing to close

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.complaints.append(f"{context.get('message')}: {error!r}")

    def bury(self, *processes: Process) -> None:
        """Lets go of the tasks that will never end, without asyncio's word on it."""
        asyncio._set_running_loop(self)
        try:
            for process in processes:
                for task in process.tasks:  # what one cleans up may begin another
                    if not task.done():
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        process.context.run(_close, task.get_coro())
                process.tasks.clear()
        finally:
            asyncio._set_running_loop(None)


def _close(work: object) -> None:
    """Ends it however often its clean-up waits for something: in a process that is dead nothing will come."""
    while inspect.iscoroutine(work) and inspect.getcoroutinestate(work) != inspect.CORO_CLOSED:
        try:
            work.close()
        except RuntimeError as ignored:
            if "GeneratorExit" not in str(ignored):
                raise
