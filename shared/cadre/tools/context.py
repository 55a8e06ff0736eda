"""What a tool may know about the call it serves: ids to make effects idempotent, and whether to stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from cadre.tools.files import File
from cadre.tools.workspace import Workspace, WorkspaceError

log = logging.getLogger("cadre.tool")


class CancelSignal:
    """Becomes true once, when nobody wants the outcome any more. Readable from any thread."""

    def __init__(self) -> None:
        self._threads = threading.Event()
        self._tasks = asyncio.Event()

    def __bool__(self) -> bool:
        return self._threads.is_set()

    def is_set(self) -> bool:
        return self._threads.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """For a plain function: blocks until cancelled, `timeout` seconds at most; true if cancelled."""
        return self._threads.wait(timeout)

    async def wait_async(self) -> None:
        """For an async function: returns when cancelled."""
        await self._tasks.wait()

    def set(self) -> None:
        """Called in the event loop's thread."""
        self._threads.set()
        self._tasks.set()


class ToolContext:
    """Injected into a parameter with this hint; the model never sees that parameter.

    `call_id` is the same however often a call is run again: hand it to the outside world as the
    idempotency key. `deliveries` is 1 at the first try. `traceparent` (W3C) names the span of this call in the
    trace of its run: a header for services that the tool asks, a parent for spans of its own. Without arguments it
    serves a unit test.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        *,
        call_id: str = "",
        run: str = "",
        tree: str = "",
        tool: str = "",
        deliveries: int = 1,
        traceparent: str = "",
        workspace: Workspace | None = None,
    ) -> None:
        self.call_id = call_id
        self.run = run
        self.tree = tree
        self.tool = tool
        self.deliveries = deliveries
        self.traceparent = traceparent
        self.cancelled = CancelSignal()
        self.thread: asyncio.Future[Any] | None = None
        """Of a plain function once it has begun; for whoever runs the tool."""
        self._workspace = workspace

    @property
    def workspace(self) -> Workspace:
        """The files of the run's tree. Raises WorkspaceError where there are none: in a test that gives none."""
        if self._workspace is None:
            raise WorkspaceError("this call has no workspace: give ToolContext(workspace=…)")
        return self._workspace

    async def fetch(self, file: File) -> None:
        """Gives an argument its content. Raises NoSuchFile, WrongPath, BlobMissing."""
        if file.is_loaded:
            return
        if file.path:
            found = await self.workspace.read(file.path)
            file.load(found.data, found.info)
        else:
            file.load(await self.workspace.blob(file.info.ref))

    def progress(self, text: str) -> None:
        """Says in the executor's log how far the call is."""
        log.info("%s %s: %s", self.tool, self.call_id, text)
