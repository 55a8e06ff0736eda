"""The client and the handle of a run, for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Self, TypeVar, Unpack, overload

from cadre.api.runs import State
from cadre.client.blocking import Blocking, Mirrored, blocking, blocking_iterator
from cadre.client.client import HINTS, RESOURCES, AsyncClient
from cadre.client.events import Event
from cadre.client.run_handle import RUN_HINTS, AsyncRunHandle
from cadre.client.run_options import ForkOptions, StartOptions
from cadre.options import explained

T = TypeVar("T")


@explained(RUN_HINTS)
class RunHandle(Blocking[AsyncRunHandle]):
    """An AsyncRunHandle whose methods wait."""

    id: Mirrored[str] = Mirrored(AsyncRunHandle)
    state: Mirrored[State | None] = Mirrored(AsyncRunHandle)

    def __repr__(self) -> str:
        return "<" + repr(self._target).removeprefix("<Async")

    def __iter__(self) -> Iterator[Event]:
        return self.stream()

    stream = blocking_iterator(AsyncRunHandle.stream)
    detail = blocking(AsyncRunHandle.detail)
    wait = blocking(AsyncRunHandle.wait)
    cancel = blocking(AsyncRunHandle.cancel)
    tell = blocking(AsyncRunHandle.tell)
    queue = blocking(AsyncRunHandle.queue)
    plan = blocking(AsyncRunHandle.plan)
    edit = blocking(AsyncRunHandle.edit)
    signal = blocking(AsyncRunHandle.signal)
    approvals = blocking(AsyncRunHandle.approvals)
    approve = blocking(AsyncRunHandle.approve)
    reject = blocking(AsyncRunHandle.reject)
    correct = blocking(AsyncRunHandle.correct)
    files = blocking(AsyncRunHandle.files)
    read_file = blocking(AsyncRunHandle.read_file)
    download = blocking(AsyncRunHandle.download)
    upload = blocking(AsyncRunHandle.upload)
    trace = blocking(AsyncRunHandle.trace)
    erase = blocking(AsyncRunHandle.erase)

    @overload
    def result(self, output_type: None = None, *, timeout: float | timedelta | None = None) -> Any: ...

    @overload
    def result(self, output_type: type[T], *, timeout: float | timedelta | None = None) -> T: ...

    def result(self, output_type: Any = None, *, timeout: float | timedelta | None = None) -> Any:
        """As AsyncRunHandle.result."""
        return self._wait(self._target.result(output_type, timeout=timeout))

    def fork(self, at: int, **options: Unpack[ForkOptions]) -> RunHandle:
        """As AsyncRunHandle.fork."""
        return RunHandle(self._wait(self._target.fork(at, **options)), self._loop)

    def resume(self, steps: int | None = None, *, idempotency_key: str | None = None) -> RunHandle:
        """As AsyncRunHandle.resume."""
        return RunHandle(self._wait(self._target.resume(steps, idempotency_key=idempotency_key)), self._loop)


@explained(HINTS, RESOURCES)
class Client(Blocking[AsyncClient]):
    """A client of one gateway, whose methods block: starts runs, follows them, decides on their calls.

    Close it, or use it as a context manager. `AsyncClient` is its twin for event loops.

    Args:
        url: The gateway's address; by default CADRE_GATEWAY_URL, else that of the `cadre up` of this folder.
        api_key: The key that requests carry; by default CADRE_API_KEY.

    Raises:
        ClientError: From every method: `Unreachable`, `NotFound`, `InvalidRequest`, `Conflict`, and others of
            `cadre.client`, each with the `status` and `problem` of the gateway's answer.

    Examples:
        >>> with Client() as cadre:
        ...     cadre.run("writer", "How many words has 'to be or not to be'?", timeout=60)
        'six'
    """

    def __init__(self, url: str | None = None, *, api_key: str | None = None) -> None:
        super().__init__(AsyncClient(url, api_key=api_key), asyncio.Runner())

    url: Mirrored[str] = Mirrored(AsyncClient)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections for good."""
        self._wait(self._target.close())
        self._loop.close()

    request = blocking(AsyncClient.request)
    pages = blocking_iterator(AsyncClient.pages)
    fetch = blocking(AsyncClient.fetch)
    get_run = blocking(AsyncClient.get_run)
    runs = blocking_iterator(AsyncClient.runs)
    agents = blocking(AsyncClient.agents)
    tools = blocking(AsyncClient.tools)
    sandboxes = blocking(AsyncClient.sandboxes)
    approvals = blocking(AsyncClient.approvals)
    approve = blocking(AsyncClient.approve)
    reject = blocking(AsyncClient.reject)
    correct = blocking(AsyncClient.correct)
    schedules = blocking(AsyncClient.schedules)
    schedule = blocking(AsyncClient.schedule)
    put_schedule = blocking(AsyncClient.put_schedule)
    remove_schedule = blocking(AsyncClient.remove_schedule)
    triggers = blocking(AsyncClient.triggers)
    trigger = blocking(AsyncClient.trigger)
    put_trigger = blocking(AsyncClient.put_trigger)
    remove_trigger = blocking(AsyncClient.remove_trigger)
    notices = blocking(AsyncClient.notices)
    notice = blocking(AsyncClient.notice)
    put_notice = blocking(AsyncClient.put_notice)
    remove_notice = blocking(AsyncClient.remove_notice)
    budgets = blocking(AsyncClient.budgets)
    budget = blocking(AsyncClient.budget)
    put_budget = blocking(AsyncClient.put_budget)
    remove_budget = blocking(AsyncClient.remove_budget)
    statistics = blocking(AsyncClient.statistics)
    blob = blocking(AsyncClient.blob)
    search_memory = blocking(AsyncClient.search_memory)
    memories = blocking_iterator(AsyncClient.memories)
    forget = blocking(AsyncClient.forget)

    def start(self, agent: str, task: str, *, output_type: Any = None, **options: Unpack[StartOptions]) -> RunHandle:
        """As AsyncClient.start."""
        started = self._wait(self._target.start(agent, task, output_type=output_type, **options))
        return RunHandle(started, self._loop)

    def run_schedule(self, name: str, *, idempotency_key: str | None = None) -> RunHandle:
        """As AsyncClient.run_schedule."""
        return RunHandle(self._wait(self._target.run_schedule(name, idempotency_key=idempotency_key)), self._loop)

    def attach(self, run_id: str) -> RunHandle:
        """As AsyncClient.attach."""
        return RunHandle(self._target.attach(run_id), self._loop)

    @overload
    def run(
        self,
        agent: str,
        task: str,
        *,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> Any: ...

    @overload
    def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: type[T],
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> T: ...

    def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """As AsyncClient.run."""
        return self.start(agent, task, output_type=output_type, **options).result(timeout=timeout)
