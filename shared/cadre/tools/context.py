"""The context of a tool call: ids that make effects idempotent, the workspace, and whether to stop."""

import asyncio
import logging
import threading
from typing import Any

from cadre.options import Explaining, explained
from cadre.protocol.messages import Resumption
from cadre.tools.files import File
from cadre.tools.workspace import Workspace, WorkspaceError

log = logging.getLogger("cadre.tool")


class CancelSignal:
    """Becomes true once, when the call's outcome is no longer wanted. Any thread may read it."""

    def __init__(self) -> None:
        self._threads = threading.Event()
        self._tasks = asyncio.Event()

    def __bool__(self) -> bool:
        return self._threads.is_set()

    def is_set(self) -> bool:
        """Return whether the call is cancelled."""
        return self._threads.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block a plain function until the call is cancelled, for `timeout` seconds at most; true if cancelled."""
        return self._threads.wait(timeout)

    async def wait_async(self) -> None:
        """Wait in an async function until the call is cancelled."""
        await self._tasks.wait()

    def set(self) -> None:
        """Cancel the call; to be called in the event loop's thread."""
        self._threads.set()
        self._tasks.set()


@explained(
    {
        "run_id": "run",
        "session_id": "session",
        "user_id": "user",
        "debug": "progress(text)",
        "error": "raise ToolError(text)",
        "info": "progress(text)",
        "log": "progress(text)",
        "report_progress": "progress(text)",
        "retry": "raise ToolError(text)",
        "warning": "progress(text)",
        "deps": "a tool reads its own module's variables",
        "state": "workspace keeps files for the run",
    }
)
class ToolContext(metaclass=Explaining):
    """The context of one call, passed to a parameter with this hint, which the model does not see.

    In a unit test it can be made without arguments.

    Attributes:
        call_id: The same in every run of the call: use it as the idempotency key.
        run: The id of the run, and `tree` that of its root run.
        deliveries: 1 at the first try.
        user: The person for whom the run works, and `session` its session; empty without one.
        traceparent: The span (W3C) of this call in the trace of its run: a header for services that the tool calls,
            a parent for the spans of the tool.
        cancelled: True once the outcome of the call is no longer wanted.
        workspace: The files of the tree of runs.

    Examples:
        >>> def pay(amount: float, context: ToolContext) -> str:
        ...     '''Pay an amount.'''
        ...     return f"paid {amount} with the key {context.call_id}"
        >>> pay(12.5, ToolContext(call_id="r1_1_0"))
        'paid 12.5 with the key r1_1_0'
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        *,
        call_id: str = "",
        run: str = "",
        tree: str = "",
        tool: str = "",
        user: str = "",
        session: str = "",
        deliveries: int = 1,
        traceparent: str = "",
        workspace: Workspace | None = None,
        resumes: Resumption | None = None,
        cleanup: bool = False,
    ) -> None:
        self.call_id = call_id
        self.run = run
        self.tree = tree
        self.tool = tool
        self.user = user
        """The person for whom the tree of runs works, as its caller has named them; empty: not named."""
        self.session = session
        """The session of the tree's first run; empty: none."""
        self.deliveries = deliveries
        self.traceparent = traceparent
        self.resumes = resumes
        """The point at which a call goes on that its tool has left unfinished."""
        self.cleanup = cleanup
        """The run has ended: the tool must leave things in order."""
        self.cancelled = CancelSignal()
        self.thread: asyncio.Future[Any] | None = None
        """Done when the thread of a plain function ends; None before it begins. For the executor."""
        self._workspace = workspace

    @property
    def workspace(self) -> Workspace:
        """The files of the run's tree. Raises WorkspaceError when the context was made without a workspace."""
        if self._workspace is None:
            raise WorkspaceError("this call has no workspace: give ToolContext(workspace=…)")
        return self._workspace

    async def fetch(self, file: File) -> None:
        """Load the content of a file argument. Raises NoSuchFile, WrongPath, BlobMissing."""
        if file.is_loaded:
            return
        if file.path:
            found = await self.workspace.read(file.path)
            file.load(found.data, found.info)
        else:
            file.load(await self.workspace.blob(file.info.ref))

    def progress(self, text: str) -> None:
        """Log the progress of the call in the executor's log."""
        log.info("%s %s: %s", self.tool, self.call_id, text)
