"""The client and the handle of a run, for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Self, TypeVar, Unpack, overload

from cadre.client.blocking import Blocking, blocking, blocking_iterator
from cadre.client.client import Client
from cadre.client.event import Event
from cadre.client.run_handle import RunHandle
from cadre.client.run_options import ForkOptions, StartOptions

T = TypeVar("T")


class SyncRunHandle(Blocking[RunHandle]):
    """A RunHandle whose methods wait."""

    @property
    def id(self) -> str:
        """Id of the run."""
        return self._target.id

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    events = blocking_iterator(RunHandle.events)
    detail = blocking(RunHandle.detail)
    wait = blocking(RunHandle.wait)
    cancel = blocking(RunHandle.cancel)
    tell = blocking(RunHandle.tell)
    queue = blocking(RunHandle.queue)
    plan = blocking(RunHandle.plan)
    edit = blocking(RunHandle.edit)
    signal = blocking(RunHandle.signal)
    approvals = blocking(RunHandle.approvals)
    approve = blocking(RunHandle.approve)
    reject = blocking(RunHandle.reject)
    correct = blocking(RunHandle.correct)
    files = blocking(RunHandle.files)
    read_file = blocking(RunHandle.read_file)
    download = blocking(RunHandle.download)
    upload = blocking(RunHandle.upload)
    trace = blocking(RunHandle.trace)
    erase = blocking(RunHandle.erase)

    @overload
    def result(self, output_type: None = None, *, timeout: float | None = None) -> Any: ...

    @overload
    def result(self, output_type: type[T], *, timeout: float | None = None) -> T: ...

    def result(self, output_type: Any = None, *, timeout: float | None = None) -> Any:
        """As RunHandle.result."""
        return self._wait(self._target.result(output_type, timeout=timeout))

    def fork(self, at: int, **options: Unpack[ForkOptions]) -> SyncRunHandle:
        """As RunHandle.fork."""
        return SyncRunHandle(self._wait(self._target.fork(at, **options)), self._loop)

    def go_on(self, steps: int | None = None, *, key: str | None = None) -> SyncRunHandle:
        """As RunHandle.go_on."""
        return SyncRunHandle(self._wait(self._target.go_on(steps, key=key)), self._loop)


class SyncClient(Blocking[Client]):
    """A Client whose methods wait. Close it, or use it as a context manager."""

    def __init__(self, url: str | None = None, key: str | None = None) -> None:
        super().__init__(Client(url, key), asyncio.Runner())

    @property
    def url(self) -> str:
        """The gateway's URL."""
        return self._target.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections for good."""
        self._wait(self._target.close())
        self._loop.close()

    request = blocking(Client.request)
    pages = blocking_iterator(Client.pages)
    fetch = blocking(Client.fetch)
    get_run = blocking(Client.get_run)
    runs = blocking_iterator(Client.runs)
    agents = blocking(Client.agents)
    tools = blocking(Client.tools)
    sandboxes = blocking(Client.sandboxes)
    approvals = blocking(Client.approvals)
    decide = blocking(Client.decide)
    schedules = blocking(Client.schedules)
    schedule = blocking(Client.schedule)
    put_schedule = blocking(Client.put_schedule)
    remove_schedule = blocking(Client.remove_schedule)
    triggers = blocking(Client.triggers)
    trigger = blocking(Client.trigger)
    put_trigger = blocking(Client.put_trigger)
    remove_trigger = blocking(Client.remove_trigger)
    notices = blocking(Client.notices)
    notice = blocking(Client.notice)
    put_notice = blocking(Client.put_notice)
    remove_notice = blocking(Client.remove_notice)
    budgets = blocking(Client.budgets)
    budget = blocking(Client.budget)
    put_budget = blocking(Client.put_budget)
    remove_budget = blocking(Client.remove_budget)
    statistics = blocking(Client.statistics)
    blob = blocking(Client.blob)
    search_memory = blocking(Client.search_memory)
    memories = blocking_iterator(Client.memories)
    forget = blocking(Client.forget)

    def start(self, agent: str, task: str, **options: Unpack[StartOptions]) -> SyncRunHandle:
        """As Client.start."""
        return SyncRunHandle(self._wait(self._target.start(agent, task, **options)), self._loop)

    def run_schedule(self, name: str, *, key: str | None = None) -> SyncRunHandle:
        """As Client.run_schedule."""
        return SyncRunHandle(self._wait(self._target.run_schedule(name, key=key)), self._loop)

    def attach(self, run_id: str) -> SyncRunHandle:
        """As Client.attach."""
        return SyncRunHandle(self._target.attach(run_id), self._loop)

    @overload
    def run(
        self, agent: str, task: str, *, timeout: float | None = None, **options: Unpack[StartOptions]
    ) -> Any: ...

    @overload
    def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: type[T],
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> T: ...

    def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """As Client.run."""
        return self.start(agent, task, **options).result(output_type, timeout=timeout)
