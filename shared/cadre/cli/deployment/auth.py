"""`cadre auth`: a NATS user for every service, with the rights that it needs and no more; `cadre tenant`: the tenants
of a gateway, each with its own account, keys and names."""

import sys
from pathlib import Path
from typing import Any

import click

from cadre.adapters import local_stack
from cadre.errors import CommandFailed
from cadre.protocol.topology import Topology
from cadre.settings import NAME, read_settings


@click.group("auth")
def command() -> None:
    """The NATS users of a deployment."""


@command.command("init")
@click.option("--team", type=click.Path(path_type=Path), help="Users for all services of this team.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="A user for one agent more.")
@click.option("--tools", multiple=True, metavar="NAME=TOOL,TOOL", help="A user for one more service of these tools.")
@click.option("--pool", "pools", multiple=True, metavar="NAME", help="A user for one sandbox pool more.")
@click.option("--memory", is_flag=True, help="A user for the memory service.")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), help="Folder.  [default: .cadre/auth]")
@click.option("--rotate", is_flag=True, help="New keys for all users, or for those of --user.")
@click.option("--remove", is_flag=True, help="Take the users of --user away.")
@click.option("--user", "users", multiple=True, metavar="USER", help="Whom --rotate or --remove is about.")
@click.option("--apart", is_flag=True, help="Put each key in its own folder, USER/nats.nk: a volume for each.")
@click.option("--secrets", is_flag=True, help="Print the keys, and the server's file, as Kubernetes Secrets.")
@click.option("--namespace", default="cadre", show_default=True, help="Of the Secrets.")
def init(folder: Path | None, **options: Any) -> None:
    """Make the users, their keys, and the file that the NATS server includes.

    What is there is kept: called again, it adds what is new. The server must then read its file again.
    """

    from cadre.deploy import nats_files  # the bus's weight is not the help's

    folder = folder or local_stack.default_data() / "auth"
    users, rotate, remove = options["users"], options["rotate"], options["remove"]
    apart = options["apart"]
    if rotate and remove:
        raise click.UsageError("--rotate or --remove, not both")
    if remove and not users:
        raise click.UsageError("--remove needs --user: name whom to take away")
    if users and not (rotate or remove):
        raise click.UsageError("--user goes with --rotate or --remove")
    settings = read_settings()
    known = nats_files.known_roles(folder, apart=apart)
    roles = _roles(options, known=bool(known))
    rotated = (users or [role.user for role in known]) if rotate else []
    changes = nats_files.update_users(
        folder,
        roles,
        Topology(settings.shards, settings.prefix),
        rotate=rotated,
        remove=users if remove else [],
        apart=apart,
    )
    for what, names in (("new", changes.new), ("kept", changes.kept), ("gone", changes.removed)):
        if names:
            click.echo(f"{what:5}{', '.join(names)}", err=True)
    click.echo(
        f"cadre: the server includes {nats_files.server_folder(folder, apart=apart) / nats_files.SERVER_FILE} and must"
        " read it again; each service gets its file as CADRE_NATS_CREDENTIALS, as in"
        f" {nats_files.key_file(folder, 'gateway', apart=apart)}",
        err=True,
    )
    if options["secrets"]:
        sys.stdout.write(nats_files.secrets(folder, options["namespace"], apart=apart))


def _roles(options: dict[str, Any], *, known: bool) -> list[Any]:
    from cadre.deploy.team_components import roles_of
    from cadre.deploy.team_file import read_team
    from cadre.protocol.nats_users import team_roles

    tools = [_tools(text) for text in options["tools"]]
    for name in (*options["agents"], *options["pools"]):
        _check(name)
    named = team_roles(options["agents"], tools, options["pools"], memory=options["memory"])
    if options["team"] is not None:
        return [*roles_of(read_team(options["team"])), *named]
    if not known and len(named) == len(team_roles([], [], [], memory=False)):
        raise click.UsageError("name a team with --team, or single services with --agent, --tools, --pool")
    return named


def _tools(text: str) -> tuple[str, tuple[str, ...]]:
    name, mark, rest = text.partition("=")
    tools = tuple(tool.strip() for tool in rest.split(",") if tool.strip())
    if not mark or not tools:
        raise click.UsageError(f"--tools {text!r}: write NAME=TOOL,TOOL")
    for one in (name, *tools):
        _check(one)
    return name, tools


def _check(name: str) -> None:
    if not NAME.fullmatch(name):
        raise CommandFailed(f"{name!r}: use 1 to 64 letters, digits, '_' and '-' (it becomes part of NATS subjects)")


_folder = click.option(
    "-C",
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("tenants"),
    show_default=True,
    help="Of all tenants.",
)


@click.group("tenant")
def tenant() -> None:
    """The tenants of a gateway: each a NATS account, which sees nothing of the others."""


@tenant.command("create")
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A name by which its people reach the gateway.")
@click.option("--team", type=click.Path(path_type=Path), help="NATS users for all services of this team.")
@click.option("--storage-bytes", type=click.IntRange(1), help="The most that it may store.  [default: no bound]")
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
    own = tenants.create_tenant(folder, name, list(options["hosts"]), roles, _topology(), options["storage_bytes"])
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


@tenant.command("list")
@_folder
def list_tenants(folder: Path) -> None:
    """Print each tenant with its hosts."""
    from cadre.deploy.tenants import read_tenant, tenants_in

    for own in tenants_in(folder):
        click.echo(f"{own.name}\t{' '.join(read_tenant(own).hosts)}")


@tenant.command("remove")
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
