"""Read the context of an MCP message: its HTTP request, its support for tasks, its progress token."""

from __future__ import annotations

import contextlib
from typing import Any

from fastapi import Request
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.progress import Place, Progress

Context = ServerRequestContext[Any, Any]

EXTENSION = "io.modelcontextprotocol/tasks"


def request_of(context: Context) -> Request:
    """The request that has brought the message."""
    request = context.request
    assert isinstance(request, Request)
    return request


def takes_tasks(context: Context) -> bool:
    """Return whether the client has said with this message that it knows tasks."""
    told = context.session.client_capabilities
    return told is not None and EXTENSION in (told.extensions or {})


def check_knows_tasks(context: Context) -> None:
    """Raises MCPError unless the client has said that it knows tasks."""
    if not takes_tasks(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"declare the extension {EXTENSION}", needed)


async def follow(
    answers: Answers, run: str, context: Context, decided: frozenset[str] = frozenset()
) -> Progress:
    """Return the run's progress once the run has ended or waits for a person, which may be at once. Report progress
    even for a run that ended before. Calls that were `decided` are not waited for, however late their run learns of
    the decision. Raise a problem."""
    known = await answers.so_far(Place(run))
    if known.held.keys() - decided:
        return known
    # What waited before was decided: the next pause counts.
    progress, told = Progress(run, known.pauses[-1].seq if known.pauses else 0), 0
    async with contextlib.aclosing(answers.follow(progress)) as news:
        async for one in news:
            for line in one.lines:
                told += 1
                await context.session.report_progress(told, None, line)
    return progress
