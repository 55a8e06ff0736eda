"""The command `cadre gateway`."""

import sys
from functools import partial

import click

from cadre.errors import SettingError
from cadre.service.frame import run
from cadre.settings import is_loopback, read_access_settings, read_settings
from cadre_gateway.wiring import start


@click.command("gateway")
@click.option("--host", default=None, help="Address to listen on [CADRE_HOST, 127.0.0.1].")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=None, help="Port to listen on; 0 takes a free one."
)
@click.option("--auth", "auth", flag_value="keys", help="Ask everybody for an API key [CADRE_AUTH=keys].")
@click.option(
    "--insecure", "auth", flag_value="off", help="Let everybody in, wherever it listens [CADRE_AUTH=off]."
)
def command(host: str | None, port: int | None, auth: str | None) -> None:
    """Serves runs, their events and the directory of agents and tools over HTTP."""
    try:
        settings, access = read_settings(host=host, port=port), read_access_settings(auth=auth)
        if not access.auth and not is_loopback(settings.host):
            raise SettingError(
                f"CADRE_HOST={settings.host} can be reached from elsewhere, and nobody would be asked who they are:"
                " start it with --auth (CADRE_AUTH=keys) and an administrator's key in CADRE_ADMIN_KEY, or with"
                " --insecure (CADRE_AUTH=off) where only trusted machines reach it (docs/access.md)"
            )
    except SettingError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    sys.exit(run("gateway", settings, partial(start, access)))
