"""The command `cadre gateway`."""

import sys

import click

from cadre.errors import SettingError
from cadre.service.frame import run
from cadre.settings import read_settings
from cadre_gateway.wiring import start


@click.command("gateway")
@click.option("--host", default=None, help="Address to listen on [CADRE_HOST, 127.0.0.1].")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=None, help="Port to listen on; 0 takes a free one."
)
def command(host: str | None, port: int | None) -> None:
    """Serves runs, their events and the directory of agents and tools over HTTP."""
    try:
        settings = read_settings(host=host, port=port)
    except SettingError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    sys.exit(run("gateway", settings, start))
