"""The tools of a team's entries: Python modules and files, and files of MCP servers."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from cadre.adapters.mcp.offer import McpTool
from cadre.adapters.mcp.server import McpServer
from cadre.adapters.mcp.server_file import is_server_file, read_servers
from cadre.local import die_with_parent
from cadre.tools.loading import AnyTool, load_tools


def load_entry(entry: str) -> list[AnyTool]:
    """The tools of an entry as `cadre tools` takes it; MCP servers are asked for theirs. Raises SetupError."""
    if not is_server_file(entry):
        return load_tools(entry)
    servers = mcp_servers(entry)
    # In a thread of its own: whoever calls may be in an event loop.
    with ThreadPoolExecutor(1) as thread:
        return [*thread.submit(lambda: asyncio.run(_list_all(servers))).result()]


def mcp_servers(source: str) -> list[McpServer]:
    """The MCP servers of a file, a URL or a command; one that is started here ends with this process.

    Raises SetupError.
    """
    tie = [sys.executable, "-I", str(die_with_parent.__file__), str(os.getpid())]
    return [McpServer(spec, tie) for spec in read_servers(source)]


async def _list_all(servers: list[McpServer]) -> list[McpTool]:
    return [tool for tools in await asyncio.gather(*(one.list_tools() for one in servers)) for tool in tools]
