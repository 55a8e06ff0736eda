"""The command `memory`: serves what agents remember. The command line adds what looks into it."""

from __future__ import annotations

import asyncio
import sys
from typing import get_args

import click

from cadre.errors import ExitCode, ModelError, SetupError
from cadre.service.extras import missing_package
from cadre.settings import Settings, read_settings
from cadre_memory.settings import Embeddings, MemorySettings, read_memory_settings


@click.group("memory", invoke_without_command=True)
@click.option("--directory", metavar="DIR", help="Of the embedded index.  [CADRE_MEMORY_DIRECTORY, .cadre/memory]")
@click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    help="Then it is removed; 0: never.  [CADRE_MEMORY_KEEP_DAYS]",
)
@click.option(
    "--embeddings",
    type=click.Choice(get_args(Embeddings)),
    help="Where vectors are from.  [CADRE_MEMORY_EMBEDDINGS]",
)
@click.option("--port", type=int, help="Port of /healthz and /readyz; 0 takes a free one.  [CADRE_PORT]")
@click.option("--check", is_flag=True, help="Say what memories would be kept and compared with, and stop.")
@click.pass_context
def command(ctx: click.Context, /, port: int | None, check: bool, **options: object) -> None:
    """Serve the memory of agents: the tools recall, remember and forget_memory.

    With a subcommand: look into the memory of a running service, through the gateway.
    """
    if ctx.invoked_subcommand is not None:
        return
    try:
        settings, own = read_settings(port=port), read_memory_settings(**options)
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    try:
        sys.exit(_check(own) if check else _serve(settings, own))
    except ModuleNotFoundError as error:
        raise missing_package("memory", error) from error


def _serve(settings: Settings, own: MemorySettings) -> int:
    # Here, so that the subcommands need none of the service's libraries.
    from cadre.service import frame
    from cadre.service.platform import Platform
    from cadre_memory.host import MemoryHost

    async def start(platform: Platform) -> MemoryHost:
        host = MemoryHost(platform, own)
        await host.start()
        return host

    return frame.run("memory", settings, start)


def _check(own: MemorySettings) -> int:
    """Two lines: the index, and the embeddings, which an endpoint is asked for once. Exit code 3 when only words would
    be compared, 5 when the endpoint gives no vectors, with the reason on stderr."""
    import cadre_memory.host  # noqa: F401 - whether all that it needs is installed
    from cadre_memory.embedding.open import describe, try_endpoint

    embeddings, meanings = describe(own)
    click.echo(f"index {own.qdrant_url or own.directory}")
    click.echo(f"embeddings {embeddings}" if meanings else embeddings)
    if not meanings:
        return 3
    try:
        asyncio.run(try_endpoint(own))
    except ModelError as error:
        click.echo(f"cadre: {error}", err=True)
        return ExitCode.UNREACHABLE
    return 0
