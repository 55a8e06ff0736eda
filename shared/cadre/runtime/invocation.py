"""Run one call of a tool within its timeout and below its span, open to interruption; every outcome becomes data."""

import asyncio
import contextvars
import logging
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cadre.delivery.ended_runs import EndedRuns
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.workspace_store import WorkspaceStore
from cadre.ports import Blobs, FileIndex
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import ErrorInfo, ToolCall, Unfinished
from cadre.protocol.topology import is_within
from cadre.runtime.tool_output import as_promised, cut_error, to_json
from cadre.telemetry.tracing.ids import traceparent_of
from cadre.tool import InvalidArguments, ToolContext
from cadre.tools.decorator import CallInterrupted, CallPaused, FailedAs, ToolError
from cadre.tools.files import File
from cadre.tools.loading import AnyTool
from cadre.tools.workspace import Workspace

log = logging.getLogger("cadre.tools")

STOP_SECONDS = 1.0
"""Seconds between telling a tool to stop and cancelling it, and then for its cleaning up."""

MAX_SHOWN_CHARS = 1000
"""Characters of the arguments that an error quotes."""


class InvocationOutcome(NamedTuple):
    """The outcome of a call: an output or an error."""

    output: Any = None
    error: ErrorInfo | None = None
    files: Sequence[File] = ()
    """The files in the output, whose bytes are to be stored."""
    unfinished: Unfinished | None = None
    """The call goes on later."""
    note: str = ""
    """A note on the output for the model."""


class FileAccess(NamedTuple):
    """Opens the workspaces of this deployment."""

    files: FileIndex
    blobs: Blobs
    most_bytes: int
    """Of one file."""

    def of(self, call: ToolCall) -> Workspace:
        """Open the workspace of the call's tree."""
        return WorkspaceStore(
            self.files, self.blobs, tree=call.tree, call=call.id, by=call.tool, most_bytes=self.most_bytes
        )


class Invocations:
    """The calls at work in this process, so that those of a run can be interrupted."""

    def __init__(self) -> None:
        self.files: FileAccess | None = None
        """None: calls have no workspace."""
        self.limiters: dict[str, FairLimiter] = {}
        """Of the tools that say how many calls may be at work: one left at work after its time keeps its slot."""
        self._at_work: dict[_Invocation, None] = {}
        self._ended = EndedRuns()

    async def run(self, tool: AnyTool, call: ToolCall, deliveries: int) -> InvocationOutcome:
        """Run the call. Never raises for what the tool does; when cancelled itself, it asks the tool to stop."""
        invocation = _Invocation(tool, call, deliveries, self.files)
        self._at_work[invocation] = None
        try:
            outcome = await invocation.outcome()
        finally:
            self._at_work.pop(invocation, None)
        left, limiter = invocation.left(), self.limiters.get(tool.name)
        if left is not None and limiter is not None:
            log.warning("tool %s, call %s is at work beyond its time: it keeps its slot", tool.name, call.id)
            limiter.hold_until_done(left)
        return outcome

    def interrupt(self, ended: str) -> None:
        """Tell the call, or the calls of the run and of all below it, to stop; async ones are cancelled a second
        later. Those that wait for a slot will not begin."""
        self._ended.add(ended)
        for invocation in self._at_work:
            if is_within(invocation.call_id, ended) and (not invocation.cleanup or ended == invocation.call_id):
                invocation.interrupt()

    def is_ended(self, call: ToolCall) -> bool:
        """Return whether this process has heard that no run awaits the call any more."""
        return not call.cleanup and self._ended.covers(call.id)


class _Invocation:
    def __init__(self, tool: AnyTool, call: ToolCall, deliveries: int, files: FileAccess | None) -> None:
        self._tool = tool
        self._call = call
        self._most_bytes = files.most_bytes if files is not None else None
        self.call_id = call.id
        self.cleanup = call.cleanup
        self._context = ToolContext(
            call_id=call.id,
            run=call.run,
            tree=call.tree,
            tool=tool.name,
            user=(call.origin and call.origin.user) or "",
            session=(call.origin and call.origin.session) or "",
            deliveries=deliveries,
            traceparent=traceparent_of(call),
            workspace=files.of(call) if files is not None else None,
            resumes=call.resumes,
            cleanup=call.cleanup,
        )
        self._task = asyncio.create_task(
            tool.call(call.arguments, self._context),
            name=f"call {call.id}",
            context=context_below(self._context.traceparent),
        )

    def interrupt(self) -> None:
        if not self._context.cancelled:
            self._context.cancelled.set()
            if self._tool.is_async:
                asyncio.get_running_loop().call_later(STOP_SECONDS, self._task.cancel)

    async def outcome(self) -> InvocationOutcome:
        timeout = self._tool.card.timeout
        try:
            done, _ = await asyncio.wait({self._task}, timeout=timeout)
        except asyncio.CancelledError:
            # The process is ending: the call goes back to the queue, where its claim shows what happened.
            self._abandon()
            raise
        if done:
            return self._ended()
        self._abandon()
        await asyncio.wait({self._task}, timeout=STOP_SECONDS)
        still = "" if self._tool.is_async else "; what it does in its thread may still take effect"
        why = f"TimeoutError: no result within {timeout:g} s{still}"
        return InvocationOutcome(error=self._failure(why, "timed-out", TimeoutError.__name__))

    def left(self) -> asyncio.Future[Any] | None:
        """Return what is at work although the call has its outcome: a thread, or a coroutine that will not be
        cancelled."""
        thread = self._context.thread
        return next((one for one in (self._task, thread) if one is not None and not one.done()), None)

    def _abandon(self) -> None:
        self._context.cancelled.set()
        self._task.cancel()
        for one in (self._task, self._context.thread):
            if one is not None:
                one.add_done_callback(self._look_away)

    def _look_away(self, ended: asyncio.Future[Any]) -> None:
        # The outcome of an abandoned call is never read; asyncio would report its exception as never retrieved.
        if not ended.cancelled() and (error := ended.exception()) is not None:
            log.info("abandoned call %s ended with %s", self.call_id, _one_line(error))

    def _ended(self) -> InvocationOutcome:
        if self._task.cancelled() and self._context.cancelled:
            text = f"outcome unknown: the run was cancelled while tool {self._tool.name!r} was at work"
            return InvocationOutcome(error=ErrorInfo("interrupted", text))
        error = self._raised()
        if error is None:
            return self._returned(self._task.result())
        if isinstance(error, InvalidArguments):
            head = f"Invalid call of tool {self._tool.name!r} with arguments {self._shown()}: "
            return InvocationOutcome(error=_about("invalid-call", head, _text_of(error)))
        if isinstance(error, ToolError):
            text = cut_error(_text_of(error))
            return InvocationOutcome(error=ErrorInfo("tool-failed", text, raised=type(error).__name__))
        if isinstance(error, FailedAs):
            return InvocationOutcome(error=error.info)
        if isinstance(error, CallPaused) and self._call.may_pause:
            return InvocationOutcome(unfinished=error.unfinished)
        if isinstance(error, CallInterrupted):
            text = (
                f"outcome unknown: {_text_of(error)}; tool {self._tool.name!r} may or may not have done its work,"
                " and was not run again"
            )
            return InvocationOutcome(error=ErrorInfo("interrupted", cut_error(text)))
        log.warning("tool %s, call %s failed", self._tool.name, self._call.id, exc_info=error)
        return InvocationOutcome(error=self._failure(_one_line(error), raised=type(error).__name__))

    def _returned(self, result: Any) -> InvocationOutcome:
        """Return the tool's whole result, of any form: the tool has done its work."""
        value, files, notes = to_json(result, self._most_bytes)
        if self._tool.promises_output and self._tool.card.output_schema is not None:
            value, misfit = as_promised(self._tool.card.output_schema, value)
            notes += [misfit] if misfit else []
        return InvocationOutcome(value, files=files, note="; ".join(notes))

    def _raised(self) -> BaseException | None:
        try:
            return self._task.exception()
        except asyncio.CancelledError as error:
            # The call was not cancelled: the error is the tool's own.
            return error

    def _failure(self, problem: str, code: ErrorCode = "tool-failed", raised: str = "") -> ErrorInfo:
        head = f"Error executing tool {self._tool.name!r} with arguments {self._shown()}: "
        return _about(code, head, problem, raised)

    def _shown(self) -> str:
        text = msgspec.json.encode(self._call.arguments).decode()
        return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def _about(code: ErrorCode, head: str, problem: str, raised: str = "") -> ErrorInfo:
    text = cut_error(head + problem)
    return ErrorInfo(code, text, raised=raised, preamble=len(head) if text.startswith(head) else 0)


def _one_line(error: BaseException) -> str:
    text = _text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as without:
        return f"<its text cannot be had: {type(without).__name__}>"


def context_below(traceparent: str) -> contextvars.Context:
    """Return a copy of the current context in which the span of a W3C traceparent is the current one.

    Does not load OpenTelemetry: where it is not imported, no code asks for the current span.
    """
    context = contextvars.copy_context()
    if "opentelemetry" in sys.modules:
        context.run(_attach, traceparent)
    return context


def _attach(traceparent: str) -> None:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    extracted = TraceContextTextMapPropagator().extract({"traceparent": traceparent}, context.get_current())
    context.attach(extracted)
