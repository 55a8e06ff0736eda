"""The tools of a team's entries: Python modules and files, files of MCP servers, and of agents that stand for remote
ones."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from cadre.adapters import die_with_parent
from cadre.adapters.mcp.server import McpServer, McpTool
from cadre.adapters.mcp.server_file import is_server_file, read_servers
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import brings_tools, read_agent, runs_program
from cadre.spec.kinds import facts_of
from cadre.tools.loading import AnyTool, load_tools


def load_entry(entry: str, *, to_serve: bool = False) -> list[AnyTool]:
    """Return the tools of an entry as `cadre tools` takes it; MCP servers are asked for theirs.

    Raises SetupError, also for secrets that are not there where the tools are to be served.
    """
    if is_agents_file(entry):
        return tools_of_agent(read_agent(Path(entry)), Path(entry).resolve().parent, to_serve=to_serve)
    if not is_server_file(entry):
        return load_tools(entry)
    servers = mcp_servers(entry)
    # In a separate thread: the caller may be in an event loop.
    with ThreadPoolExecutor(1) as thread:
        return [*thread.submit(lambda: asyncio.run(_list_all(servers))).result()]


def is_agents_file(entry: str) -> bool:
    """Return whether the entry is the file of an agent whose kind brings its tools. Raises SpecError."""
    return is_server_file(entry) and Path(entry).is_file() and brings_tools(Path(entry))


def is_program_file(entry: str) -> bool:
    """Return True if the entry is the file of an agent that is a program. Raises SpecError."""
    return is_server_file(entry) and Path(entry).is_file() and runs_program(Path(entry))


def tools_of_agent(spec: AgentSpec, folder: Path, *, to_serve: bool) -> list[AnyTool]:
    """Return the tools that the agent's kind brings; paths in its file are relative to the folder. Raises
    SetupError."""
    module, _, attribute = facts_of(spec).tools.partition(":")
    make = getattr(import_module(module), attribute)
    tools: list[AnyTool] = make(spec, folder, to_serve=to_serve)
    return tools


def mcp_servers(source: str) -> list[McpServer]:
    """Return the MCP servers of a file, a URL or a command; one that is started here ends with this process.

    Raises SetupError.
    """
    tie = [sys.executable, "-I", str(die_with_parent.__file__), str(os.getpid())]
    return [McpServer(spec, tie) for spec in read_servers(source)]


async def _list_all(servers: list[McpServer]) -> list[McpTool]:
    return [tool for tools in await asyncio.gather(*(one.list_tools() for one in servers)) for tool in tools]
