"""An MCP server of the tests' own: `mcp_server.py stdio`, or `mcp_server.py http PORT`. Its slow tools meet the test at
a socket, as `executor_tools` do."""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel

# A server that is started again reads what the one before has reported its clients.
server = MCPServer("desk", request_state_security=RequestStateSecurity(keys=[b"a key of the tests, of 32 bytes."]))

PNG = b"\x89PNG\r\n\x1a\n and so on"


def _call_of(context: Context[Any, Any]) -> str:
    """The id of Cadre's call, which is sent in addition to the arguments."""
    meta: Any = context.request_context.meta or {}
    return str(meta.get("cadre.dev/call"))


async def _meet(port: int, tool: str, call: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(json.dumps({"tool": tool, "call": call, "pid": os.getpid()}).encode() + b"\n")
    try:
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


def _leave_mark(folder: str, mark: str) -> None:
    with Path(folder, "effects.txt").open("a") as file:
        file.write(f"{mark}\n")


async def _mark_and_meet(folder: str, port: int, tool: str, context: Context[Any, Any]) -> str:
    _leave_mark(folder, f"{tool} {_call_of(context)}")
    return await _meet(port, tool, _call_of(context))


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def spend(folder: str, port: int, context: Context[Any, Any]) -> str:
    """Changes the world."""
    return await _mark_and_meet(folder, port, "spend", context)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def store(folder: str, port: int, context: Context[Any, Any]) -> str:
    """Changes the world, and may do so again."""
    return await _mark_and_meet(folder, port, "store", context)


@server.tool(name="files.wipe", annotations=ToolAnnotations(destructive_hint=True))
def wipe() -> str:
    """Removes everything."""
    return "gone"


@server.tool()
def fail() -> str:
    """Never works."""
    raise ToolError("no luck")


@server.tool()
def look() -> CallToolResult:
    """Shows a picture and a file."""
    blob = BlobResourceContents(
        uri="file:///notes/data.bin", mime_type="application/x-data", blob=base64.b64encode(b"12").decode()
    )
    return CallToolResult(
        content=[
            TextContent(text="a cat"),
            ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
            EmbeddedResource(resource=blob),
        ]
    )


@server.tool()
def whoami() -> dict[str, str]:
    """Tells the environment of the server."""
    return dict(os.environ)


@server.tool()
def who_asks(context: Context[Any, Any]) -> dict[str, Any]:
    """Tells the headers of the request, and what its client can do."""
    asked = context.request_context
    declared = asked.session.client_capabilities
    return {
        "headers": dict(asked.request.headers) if asked.request is not None else {},
        "declared": declared.model_dump(exclude_none=True) if declared is not None else {},
    }


@server.tool()
async def wait(folder: str, port: int, context: Context[Any, Any]) -> str:
    """Tells its progress, then waits to be let go."""
    await context.report_progress(1, 3, "one of three")
    try:
        return await _meet(port, "wait", _call_of(context))
    except asyncio.CancelledError:
        _leave_mark(folder, f"cancelled {_call_of(context)}")
        raise


@server.tool()
async def grow(context: Context[Any, Any]) -> str:
    """Brings one tool more."""

    def late() -> str:
        """Came later."""
        return "late"

    server.add_tool(late)
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "grown"


@server.resource("notes://{name}")
def note(name: str) -> str:
    """A note."""
    return f"about {name}"


class Answer(BaseModel):
    colour: str


@server.tool()
async def ask(context: Context[Any, Any]) -> str:
    """Asks the user something."""
    return str(await context.elicit("Which colour?", Answer))


def which_colour() -> Elicit[Answer]:
    return Elicit("Which colour?", Answer)


@server.tool()
def paint(what: str, said: Annotated[ElicitationResult[Answer], Resolve(which_colour)]) -> str:
    """Paints something in a colour that the user chooses."""
    return f"{what} is {said.data.colour}" if said.action == "accept" else f"{what} stays as it is"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
