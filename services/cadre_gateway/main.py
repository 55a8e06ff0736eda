"""Define the command `cadre gateway`, with the settings of its tenants."""

import sys
from functools import partial
from pathlib import Path

import click
import msgspec

from cadre.adapters.addresses import is_loopback
from cadre.adapters.oidc import check_packages, read_oidc_settings
from cadre.deploy.tenants import TENANT_FILE
from cadre.errors import SettingError
from cadre.service.frame import Called, run, run_serving
from cadre.service.served import ServiceProcess
from cadre.settings import (
    AccessSettings,
    read,
    read_access_settings,
    read_doors,
    read_gateway_path,
    read_http_bounds,
    read_secret,
    read_settings,
)
from cadre_gateway.doors.card_settings import read_card_settings
from cadre_gateway.index.database.settings import read_index_settings
from cadre_gateway.requests.body import BodyMemory, room_for_bodies
from cadre_gateway.requests.prefix import below
from cadre_gateway.tenants import Tenants
from cadre_gateway.wiring import GatewayOptions, start


@click.command("gateway")
@click.option("--host", default=None, help="Address to listen on [CADRE_HOST, 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--auth",
    is_flag=False,
    flag_value="keys",
    metavar="[keys|oidc|keys,oidc]",
    help="Ask everybody for an API key, for a token of an OpenID provider, or for either [CADRE_AUTH, keys].",
)
@click.option(
    "--tenants",
    type=click.Path(path_type=Path),
    default=None,
    help="Serve the tenants of this folder, each by its own host names [CADRE_TENANTS].",
)
@click.option("--insecure", is_flag=True, help="Let everybody in, wherever it listens [CADRE_AUTH=off].")
def command(host: str | None, port: int | None, auth: str | None, tenants: Path | None, insecure: bool) -> None:
    """Serves runs, their events and the directory of agents and tools over HTTP."""
    try:
        settings = read_settings(host=host, port=port)
        front = partial(below, read_gateway_path())
        bodies = BodyMemory(room_for_bodies(read_http_bounds().body_bytes))
        folder = read_tenants_folder(tenants, asked=auth is not None or insecure)
        if folder is not None and "synadia" in read_doors():
            raise SettingError(
                "CADRE_DOORS names synadia, which a gateway of tenants cannot open: give a tenant that is to be on NATS"
                " its own gateway"
            )
        if folder is not None:
            sys.exit(run_serving(Called("gateway"), settings, partial(_tenants, folder, bodies), front=front))
        access = read_access_settings(auth="off" if insecure else auth)
        oidc = None
        if "oidc" in access.ways():
            check_packages()
            oidc = read_oidc_settings()
            oidc.read_grants()
        if not access.auth and not is_loopback(settings.host):
            raise SettingError(
                f"CADRE_HOST={settings.host} can be reached from elsewhere, and would not authenticate callers:"
                " start it with --auth (CADRE_AUTH=keys) and an administrator's key in CADRE_ADMIN_KEY, or with"
                " --insecure (CADRE_AUTH=off) where only trusted machines reach it (docs/access.md)"
            )
        options = GatewayOptions(access, oidc, read_index_settings(), bodies, read_card_settings(), read_secret)
    except SettingError as error:
        click.echo(f"cadre: {error}", err=True)
        sys.exit(2)
    sys.exit(run("gateway", settings, partial(start, options), front=front))


def _tenants(folder: Path, bodies: BodyMemory, process: ServiceProcess) -> Tenants:
    return Tenants(folder, process, bodies)


class TenantsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for where the tenants of a gateway are: `CADRE_<FIELD>`."""

    tenants: str = ""
    """The folder that `cadre tenant` makes; "" for a gateway of one deployment."""


def read_tenants_folder(given: Path | None, *, asked: bool) -> Path | None:
    """Return the folder of tenants: the one given, else that of the environment; None for a gateway of one deployment.
    `asked`: whether the command sets who is let in. Raises SettingError in that case, because that belongs in the
    tenants' files."""
    named = read(TenantsSettings, "CADRE_").tenants
    folder = given or (Path(named) if named else None)
    if folder is not None and (asked or read_access_settings() != AccessSettings()):
        raise SettingError(
            "CADRE_TENANTS is set, and so is whom to let in (CADRE_AUTH, CADRE_ADMIN_KEY, CADRE_ALLOWED_HOSTS,"
            f" CADRE_KEY_RATE, --auth, --insecure): write that into each tenant's {TENANT_FILE} (docs/access.md)"
        )
    return folder
