"""The command `cadre agent FILE…`."""

import sys
from pathlib import Path

import click

from cadre.errors import SetupError
from cadre.settings import read_settings


@click.command("agent")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--host", help="Address of the health endpoints.")
@click.option("--port", type=int, help="Port of the health endpoints; 0 takes a free one.")
@click.option("--nats-url", help="The NATS server (CADRE_NATS_URL).")
def command(files: tuple[Path, ...], host: str | None, port: int | None, nats_url: str | None) -> None:
    """Serve the agent that a YAML FILE describes, until stopped; several files make one process with all agents."""
    from cadre.service.agent import serve  # the weight of a service is not the command line's

    try:
        settings = read_settings(host=host, port=port, nats_url=nats_url)
    except SetupError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    serve(*files, settings=settings)
