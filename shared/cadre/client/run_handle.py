"""One run as a program holds it: follow it, wait for its answer, decide on its calls, end it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, overload
from urllib.parse import quote

from cadre.api.runs import (
    Approval,
    ApprovalDecision,
    Delivered,
    Edited,
    RunDetail,
    State,
    TraceTree,
)
from cadre.client.errors import OutputMismatch, RunCancelled, RunFailed, TimedOut
from cadre.client.events import Event, View, read_events
from cadre.client.run_options import ForkOptions, fork_body
from cadre.client.transport import RUNS, RunRequests, typed
from cadre.options import Explaining, explained
from cadre.protocol.messages import CallEdit, MessageMode
from cadre.tools.json_types import as_answer
from cadre.tools.workspace import FileEntry

T = TypeVar("T")

ALL = "all"
"""Stands for all calls of a run that wait."""

_BEHIND_ALL = str(2**53 - 1)
"""The greatest event id: of past events only the end is sent."""

_PAUSE_SECONDS = 0.1
"""The pause before asking another gateway again, which may lag behind the one that reported the end."""


RUN_HINTS = {
    "output": "result() waits for it; detail().output is the current one",
    "events": "stream()",
    "usage": "detail().usage",
    "cost": "detail().usage.cost",
    "delete": "erase()",
    "get": "result()",
    "join": "wait()",
    "ready": "detail().finished",
    "revoke": "cancel()",
    "send": "tell(text)",
    "status": "state",
    "terminate": "cancel(now=True)",
    "messages": "detail(full=True).steps",
    "refresh": "detail()",
}
"""Attributes of other libraries' runs, each with what has the same here."""


@explained(RUN_HINTS)
class AsyncRunHandle(metaclass=Explaining):
    """A run of a gateway, by its id; it holds nothing open. Every method raises ClientError.

    `async for event in run` yields its events, and those of all runs below it, from its beginning until `end`.
    """

    def __init__(
        self, client: RunRequests, run_id: str, later_files: Sequence[str] = (), output_type: Any = None
    ) -> None:
        self.id = run_id
        self.later_files = list(later_files)
        """Paths of a fork's workspace that are as they are now, not as they were at its step."""
        self._client = client
        self._path = f"{RUNS}/{run_id}"
        self._state: State | None = None
        self._output_type = output_type

    @classmethod
    async def post(
        cls,
        client: RunRequests,
        body: dict[str, Any],
        path: str = RUNS,
        *,
        key: str | None = None,
        output_type: Any = None,
    ) -> Self:
        """Post a request for a run as the HTTP API has it; raises as `AsyncClient.start`."""
        answer = await client.post_once(path, body, key=key)
        return cls(client, str(answer["id"]), answer.get("later_files", ()), output_type)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._state or ''}>".replace(" >", ">")

    @property
    def state(self) -> State | None:
        """Return the state in which `detail`, `wait` or `result` last saw the run; None before. It asks nothing."""
        return self._state

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.stream()

    if not TYPE_CHECKING:  # type checkers know that it does not exist

        def __await__(self) -> NoReturn:
            raise TypeError("a run is not awaited: write `await run.result()`, or `await run.wait()`")

        def __iter__(self) -> NoReturn:
            raise TypeError("write `async for event in run`")

    def stream(self, *, after: int = 0, patience: float = 60.0, view: View = "events") -> AsyncGenerator[Event, None]:
        """Yield the events behind `after`, the `seq` of an earlier one; with `view="rows"` those named `rows`.

        The deltas of each model's answer are its whole text. A lost connection is retried for up to `patience` seconds
        each time.
        """
        return read_events(self._client.http, self.id, patience=patience, after=str(after or ""), view=view)

    async def detail(self, *, full: bool = False, limit: int | None = None, after: int = 0) -> RunDetail:
        """Return the run as it is now, with its output and all runs below it; see AsyncClient.get_run."""
        run = await self._client.get_run(self.id, full=full, limit=limit, after=after)
        self._state = run.state
        return run

    async def wait(self, timeout: float | timedelta | None = None) -> RunDetail:
        """Wait for the end, however it ends. Raises TimedOut after `timeout` seconds; the run goes on."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.timeout(seconds):
                while not (run := await self.detail()).finished:
                    async for _ in read_events(self._client.http, self.id, after=_BEHIND_ALL):
                        pass
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError as error:
            raise TimedOut(self.id, seconds or 0.0) from error
        return run

    @overload
    async def result(self, output_type: None = None, *, timeout: float | timedelta | None = None) -> Any: ...

    @overload
    async def result(self, output_type: type[T], *, timeout: float | timedelta | None = None) -> T: ...

    async def result(self, output_type: Any = None, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end and return the answer: as JSON has it, or as an `output_type`, by default that with which
        the run was started.

        That is a msgspec struct, dataclass, TypedDict, pydantic model or built-in type. Raises RunFailed, RunCancelled,
        TimedOut, OutputMismatch.
        """
        run = await self.wait(timeout)
        if run.state != "success":
            raise RunCancelled(run) if run.state == "cancelled" else RunFailed(run)
        output_type = self._output_type if output_type is None else output_type
        if output_type is None:
            return run.output
        try:
            return as_answer(run.output, output_type)
        except ValueError as error:
            raise OutputMismatch(self.id, run.output, str(error)) from error

    async def cancel(self, reason: str = "", *, now: bool = False, idempotency_key: str | None = None) -> None:
        """Ask the run and everything below it to end; `wait` returns once it has. Ended runs stay as they are.

        The run first makes up for what it did; with `now` it ends at once, and its error says what is `not_undone`. A
        second request without `now` changes nothing. Raise ClientError for an `idempotency_key` that came with
        something else.
        """
        await self._client.post_once(f"{self._path}/cancel", {"reason": reason, "now": now}, key=idempotency_key)

    async def tell(
        self, text: str, *, mode: MessageMode = "append", idempotency_key: str | None = None, by: str = ""
    ) -> Delivered:
        """Say something to the run, which its model reads with the next call.

        `next` gives up calls that have not begun, `interrupt` the model call in flight as well. Raises Conflict when
        the run is over.
        """
        body = {"text": text, "mode": mode, "by": by}
        return typed(await self._client.post_once(f"{self._path}/messages", body, key=idempotency_key), Delivered)

    async def queue(self) -> Edited:
        """Return the tasks that a run of kind `task_queue` has queued, and their version. Raises NotFound for other
        kinds."""
        return typed(await self._client.request("GET", f"{self._path}/queue"), Edited)

    async def plan(self) -> Edited:
        """Return the plan of a run whose kind has one, and its version. Raises NotFound for other kinds."""
        return typed(await self._client.request("GET", f"{self._path}/plan"), Edited)

    async def edit(
        self,
        what: Edited,
        operations: Sequence[dict[str, Any]],
        *,
        idempotency_key: str | None = None,
        by: str = "",
    ) -> Edited | Delivered:
        """Edit the queue or plan that was read before; a Delivered when the agent is away at the moment.

        Raises Conflict when it has changed meanwhile, InvalidRequest for an operation that cannot be done.
        """
        body = {"version": what.version, "operations": list(operations), "by": by}
        path = f"{self._path}/{what.name}"
        answer = await self._client.post_once(path, body, key=idempotency_key, method="PATCH")
        return typed(answer, Edited) if "version" in answer else typed(answer, Delivered)

    async def signal(
        self, name: str, payload: Any = None, *, idempotency_key: str | None = None, by: str = ""
    ) -> Delivered:
        """Send the run a signal that it waits for, or will wait for; `payload` is any JSON value.

        Raises Conflict when the run is over, or keeps as many signals as it can. The same
        `idempotency_key` sends it once.
        """
        path = f"{self._path}/signals/{quote(name, safe='')}"
        return typed(await self._client.post_once(path, payload, key=idempotency_key, by=by), Delivered)

    async def approvals(self) -> list[Approval]:
        """Return its calls that wait for a person, and those of the runs below it."""
        return await self._client.approvals(run=self.id)

    async def approve(
        self,
        call: str,
        *,
        only: Sequence[int] | None = None,
        edits: Sequence[CallEdit | Mapping[str, Any]] = (),
        know: Sequence[str] = (),
        feedback: str = "",
        by: str = "",
    ) -> list[ApprovalDecision]:
        """Let a call be made, or with "all" every call that waits.

        Of the calls that a question proposes `only` those with these numbers are made, from 1, or all as `edits`
        change, drop and add them. The values of the arguments in `know` are known to policies from here on.
        """
        calls = await self._calls(call)
        return [
            await self._client.approve(one, only=only, edits=edits, know=know, feedback=feedback, by=by)
            for one in calls
        ]

    async def reject(self, call: str, *, feedback: str = "", by: str = "") -> list[ApprovalDecision]:
        """Turn a call down, or with "all" every call that waits; the model reads the feedback."""
        calls = await self._calls(call)
        return [await self._client.reject(one, feedback=feedback, by=by) for one in calls]

    async def correct(
        self,
        call: str,
        arguments: dict[str, Any] | None = None,
        *,
        tool: str | None = None,
        replace: bool = False,
        feedback: str = "",
        by: str = "",
    ) -> ApprovalDecision:
        """Have a call made with these arguments in place of those with the same names, or another tool called.

        `replace`: these are all arguments.
        """
        return await self._client.correct(call, arguments, tool=tool, replace=replace, feedback=feedback, by=by)

    async def fork(self, at: int, **options: Unpack[ForkOptions]) -> AsyncRunHandle:
        """Start a new run whose memory are the steps before `at`."""
        body, key = fork_body(at, options), options.get("idempotency_key")
        return await AsyncRunHandle.post(self._client, body, f"{self._path}/fork", key=key)

    async def resume(self, steps: int | None = None, *, idempotency_key: str | None = None) -> AsyncRunHandle:
        """Start a new run that goes on where this one ended without an answer, for so many steps more.

        Without `steps` it may take as many steps as this one.
        """
        body = {"steps": steps} if steps is not None else {}
        return await AsyncRunHandle.post(self._client, body, f"{self._path}/resume", key=idempotency_key)

    async def files(self) -> list[FileEntry]:
        """Return the files of the workspace, which all runs of its tree share."""
        found = await self._client.request("GET", f"{self._path}/files")
        return typed(found["files"], list[FileEntry])

    async def read_file(self, path: str) -> bytes:
        """Return the content of a file of the workspace."""
        content = BytesIO()
        await self._client.fetch(self._file(path), content)
        return content.getvalue()

    async def download(self, path: str, to: str | os.PathLike[str] | None = None) -> Path:
        """Write a file of the workspace to the local file `to`, or to one of its name in the current folder."""
        target = Path(to if to is not None else Path(path).name)
        await asyncio.to_thread(target.write_bytes, await self.read_file(path))
        return target

    async def upload(self, file: str | os.PathLike[str] | bytes, path: str | None = None) -> FileEntry:
        """Give the run a file: a local one, under its own name or as `path`, or a content as `path`."""
        content = file if isinstance(file, bytes) else await asyncio.to_thread(Path(file).read_bytes)
        if path is None:
            if isinstance(file, bytes):
                raise ValueError("name the file: upload(content, path)")
            path = Path(file).name
        found = await self._client.request("PUT", self._file(path), file=content)
        return typed(found, FileEntry)

    async def trace(self, *, limit: int | None = None, after: int = 0) -> TraceTree:
        """Return its trace with that of all runs below it, made from the journals; with `limit` so many spans behind
        the first `after`, as they ended, and `next`, which is `after` for the next page."""
        params = {"limit": limit, "after": after} if limit is not None else None
        return typed(await self._client.request("GET", f"{self._path}/trace", params=params), TraceTree)

    async def erase(self, *, force: bool = False) -> None:
        """Erase the root run and all runs below it for good; `force` cancels them first."""
        await self._client.request("DELETE", self._path, params={"force": "true"} if force else None)

    def _file(self, path: str) -> str:
        return f"{self._path}/files/{quote(path)}"

    async def _calls(self, call: str) -> list[str]:
        return [one.call for one in await self.approvals()] if call == ALL else [call]
