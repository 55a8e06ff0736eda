"""The command `tools`: loads the modules, shows what they offer, serves it."""

import sys
from pathlib import Path

import click

from cadre.adapters.mcp.server import INSTALL
from cadre.adapters.mcp.server_file import is_server_file
from cadre.adapters.tool_entries import is_agents_file, is_program_file, mcp_servers
from cadre.errors import SetupError
from cadre.service import frame
from cadre.service.extras import missing_modules
from cadre.service.other_processes import close_other_processes
from cadre.service.platform import Platform, Together
from cadre.service.program_host import ProgramHost
from cadre.settings import read_settings
from cadre.spec.agent_file import read_agent
from cadre.telemetry.logs import log_all_output
from cadre_tools.host import ToolHost, gather_tools


@click.command("tools")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@click.option("--mcp", "sources", multiple=True, metavar="FILE|URL|COMMAND", help="Serve the tools of MCP servers too.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls at work at once. [CADRE_CONCURRENCY]")
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one. [CADRE_PORT]")
@click.option("--alone", is_flag=True, help="Close the user's other processes to the tools' code (Linux 5.19).")
def command(
    modules: tuple[str, ...],
    sources: tuple[str, ...],
    concurrency: int | None,
    port: int | None,
    alone: bool,
) -> None:
    """Serve the tools of each MODULE: a file (tools.py), a module (package.tools), one tool of it
    (tools.py:search), a file of MCP servers (mcp.json), or that of a RemoteAgent; or run the program of an agent's
    file. A second process with the same modules shares the load."""
    if not modules and not sources:
        raise click.UsageError("name a MODULE, or MCP servers with --mcp")
    try:
        if alone:
            close_other_processes()
        settings = read_settings(concurrency=concurrency, port=port)
        log_all_output()  # what the import of a module prints too
        named = [one for one in modules if is_program_file(one)]
        programs = [(read_agent(Path(one)), Path(one).resolve().parent) for one in named]
        modules = tuple(one for one in modules if one not in named)
        files = tuple(one for one in modules if is_server_file(one) and not is_agents_file(one))
        tools = gather_tools(tuple(module for module in modules if module not in files))
        servers = [server for source in (*files, *sources) for server in mcp_servers(source)]
        if servers and missing_modules("mcp"):
            raise SetupError(INSTALL)
        for server in servers:
            server.spec.endpoint()
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    if tools:
        click.echo(f"tools: {', '.join(tool.name for tool in tools)}")
    if programs:
        click.echo(f"programs: {', '.join(spec.name for spec, _ in programs)}")
    if servers:
        click.echo(f"MCP servers: {', '.join(server.spec.name for server in servers)}")

    async def start(platform: Platform) -> Together:
        parts: list[ProgramHost | ToolHost] = [ProgramHost(platform, spec, folder) for spec, folder in programs]
        if tools or servers:
            parts.append(ToolHost(platform, tools, servers))
        for part in parts:
            await part.start()
        return Together(parts)

    sys.exit(frame.run("tools", settings, start))
