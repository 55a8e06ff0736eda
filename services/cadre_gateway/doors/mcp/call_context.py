"""What the package tells of a message, and the HTTP request that has brought it."""

from typing import Any

from fastapi import Request
from mcp.server.context import ServerRequestContext

Context = ServerRequestContext[Any, Any]


def request_of(context: Context) -> Request:
    """The request that has brought the message."""
    request = context.request
    assert isinstance(request, Request)
    return request
