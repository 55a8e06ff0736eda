"""Connects to the MCP server of a URL as `cadre tools --mcp URL` does, and calls each of its tools.

The suite starts it with the URL as the last argument, and may say in `MCP_CONFORMANCE_CONTEXT` which calls it wants.
"""

import asyncio
import json
import os
import sys
from typing import Any

from cadre.adapters.mcp.rounds import McpToolError
from cadre.adapters.mcp.server import McpServer, McpTool
from cadre.adapters.mcp.server_file import read_servers
from cadre.tools.context import ToolContext
from cadre.tools.decorator import InvalidArguments

_EXAMPLES: dict[str, Any] = {
    "number": 2,
    "integer": 2,
    "string": "text",
    "boolean": True,
    "object": {},
    "array": [],
    "null": None,
}


def example_of(tool: McpTool, tools: list[McpTool]) -> dict[str, Any]:
    """Arguments that fit a simple tool."""
    properties = tool.card.input_schema.get("properties", {})
    if "schema" in properties:  # it is to be sent what another one has reported of itself
        return {"schema": next(one.card.input_schema for one in tools if one is not tool)}
    return {name: _EXAMPLES.get(one.get("type"), "text") for name, one in properties.items()}


async def main(url: str) -> None:
    """Ends once each tool has answered."""
    (spec,) = read_servers(url)
    server = McpServer(spec)
    listed = asyncio.Event()

    async def renewed() -> None:
        listed.set()

    serving = asyncio.create_task(server.serve(renewed))
    async with asyncio.timeout(20):
        await listed.wait()
    wanted = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls")
    for tool in server.tools:
        told = [one["arguments"] for one in wanted or [] if one["name"] == tool.listed]
        if wanted is not None and not told:
            continue
        for given in told or [example_of(tool, server.tools)]:
            # Cadre refuses a null that the schema does not allow, before anything is sent.
            arguments = {name: value for name, value in given.items() if value is not None}
            context = ToolContext(call_id="call", run="run", tool=tool.name)
            try:
                print(tool.listed, arguments, "->", await tool.call(arguments, context))
            except (McpToolError, InvalidArguments) as error:
                print(tool.listed, arguments, "->", error)
    server.stop()
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
