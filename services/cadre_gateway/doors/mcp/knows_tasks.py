"""Whether a client knows tasks, as each of its messages says."""

from typing import Any

from mcp import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from cadre_gateway.doors.mcp.call_context import Context

EXTENSION = "io.modelcontextprotocol/tasks"


def takes_tasks(context: Context) -> bool:
    """Whether the client has said with this message that it knows tasks."""
    told = context.session.client_capabilities
    return told is not None and EXTENSION in (told.extensions or {})


def check_knows_tasks(context: Context) -> None:
    """Raises MCPError unless the client has said that it knows tasks."""
    if not takes_tasks(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"declare the extension {EXTENSION}", needed)
