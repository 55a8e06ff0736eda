"""The command `tools`: loads the modules, shows what they offer, serves it."""

import sys

import click

from cadre.errors import SetupError
from cadre.local.other_processes import close_other_processes
from cadre.service import frame
from cadre.settings import read_settings
from cadre_tools.host import ToolHost, gather_tools


@click.command("tools")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls at work at once. [CADRE_CONCURRENCY]")
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one. [CADRE_PORT]")
@click.option(
    "--alone", is_flag=True, help="Close the user's other processes to the tools' code (Linux 5.19)."
)
def command(modules: tuple[str, ...], concurrency: int | None, port: int | None, alone: bool) -> None:
    """Serve the tools of each MODULE: a file (tools.py), a module (package.tools), or one tool of it
    (tools.py:search). A second process with the same modules shares the load."""
    try:
        if alone:
            close_other_processes()
        settings = read_settings(concurrency=concurrency, port=port)
        tools = gather_tools(modules)
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    click.echo(f"tools: {', '.join(tool.name for tool in tools)}")

    async def start(platform: frame.Platform) -> ToolHost:
        host = ToolHost(platform, tools)
        await host.start()
        return host

    sys.exit(frame.run("tools", settings, start))
