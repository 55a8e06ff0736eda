"""`cadre tenant`: the tenants of a gateway, each with a NATS account, keys and names of its own."""

from pathlib import Path
from typing import Any

import click

from cadre.errors import CommandFailed
from cadre.protocol.topology import Topology
from cadre.settings import NAME, read_settings

_folder = click.option(
    "-C",
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("tenants"),
    show_default=True,
    help="Of all tenants.",
)


@click.group("tenant")
def command() -> None:
    """The tenants of a gateway: each a NATS account, which sees nothing of the others."""


@command.command("create")
@click.argument("name")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="A name by which its people reach the gateway."
)
@click.option("--team", type=click.Path(path_type=Path), help="NATS users for all services of this team.")
@click.option(
    "--storage-bytes", type=click.IntRange(1), help="The most that it may store.  [default: no bound]"
)
@_folder
def create(name: str, folder: Path, **options: Any) -> None:
    """Make the tenant NAME, or add the users of a team to it.

    The NATS server includes the file of accounts that this writes, and must then read it again.
    """
    from cadre.deploy import nats_files, tenants
    from cadre.deploy.team_components import roles_of
    from cadre.deploy.team_file import read_team
    from cadre.protocol.nats_users import team_roles  # the bus's weight is not the help's

    if not NAME.fullmatch(name):
        raise CommandFailed(f"{name!r}: use 1 to 64 letters, digits, '_' and '-' (it names a NATS account)")
    team = options["team"]
    roles = roles_of(read_team(team)) if team is not None else team_roles([], [], [], memory=False)
    own = tenants.create_tenant(
        folder, name, list(options["hosts"]), roles, _topology(), options["storage_bytes"]
    )
    auth = own / tenants.AUTH_FOLDER
    operator = nats_files.key_file(auth, "operator")
    click.echo(f"{own}")
    click.echo(
        f"cadre: the NATS server includes {folder / tenants.ACCOUNTS_FILE} and must read it again; then\n"
        f"  CADRE_NATS_CREDENTIALS={operator} cadre provision{f' {team}' if team is not None else ''}\n"
        f"  CADRE_TENANTS={folder} cadre gateway\n"
        f"and its administrator begins with the key in {own / tenants.ADMIN_KEY}",
        err=True,
    )


@command.command("list")
@_folder
def list_tenants(folder: Path) -> None:
    """Print each tenant with its hosts."""
    from cadre.deploy.tenants import read_tenant, tenants_in

    for own in tenants_in(folder):
        click.echo(f"{own.name}\t{' '.join(read_tenant(own).hosts)}")


@command.command("remove")
@click.argument("name")
@_folder
def remove(name: str, folder: Path) -> None:
    """Take the tenant NAME away, with its keys; what it has stored stays with the NATS server."""
    from cadre.deploy.tenants import remove_tenant

    remove_tenant(folder, name, _topology())
    click.echo(f"{name} is removed: have the NATS server read its file again", err=True)


def _topology() -> Topology:
    settings = read_settings()
    return Topology(settings.shards, settings.prefix)
