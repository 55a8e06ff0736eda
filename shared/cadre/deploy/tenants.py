"""Keep the folder of tenants: a folder for each, with its file and its keys, and the accounts of the server.

DIR/nats-accounts.conf      what the nats-server includes
DIR/NAME/tenant.yaml        the names under which it is served, and its rules
DIR/NAME/auth/              its NATS users, as `cadre auth init` makes them
DIR/NAME/admin.key          the key of its first administrator
DIR/NAME/cards.pem          signs the cards of its agents, if it is there
DIR/NAME/secrets/VARIABLE   the secrets that its triggers and notices name, a file for each
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from cadre.adapters.nats.connection.keys import read_key
from cadre.deploy import nats_files
from cadre.deploy.nats_files import Account, accounts_file
from cadre.errors import CommandFailed, SetupError, SpecError
from cadre.protocol.nats_users import Role
from cadre.protocol.topology import Topology
from cadre.spec.names import check_name
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of

ACCOUNTS_FILE = "nats-accounts.conf"
AUTH_FOLDER, ADMIN_KEY, SECRETS_FOLDER, CARD_KEY = "auth", "admin.key", "secrets", "cards.pem"

TENANT_FILE = "tenant.yaml"

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def tenants_in(folder: Path) -> list[Path]:
    """Return the folders of all tenants, by name."""
    return sorted(file.parent for file in folder.glob(f"*/{TENANT_FILE}"))


def create_tenant(
    folder: Path,
    name: str,
    hosts: list[str],
    roles: Iterable[Role],
    topology: Topology,
    storage_bytes: int | None = None,
) -> Path:
    """Make the tenant's folder, with keys for its services and its administrator, or adds users of a tenant that is
    there; returns the folder. Raises CommandFailed."""
    own = folder / name
    try:
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (own / TENANT_FILE).exists():
            if not hosts:
                raise CommandFailed("name the tenant's host with --host: its people reach it by that name")
            text = yaml.safe_dump(tenant_document(name, hosts, storage_bytes), sort_keys=False)
            (own / TENANT_FILE).write_text(text)
        read_tenant(own)
        _check_hosts(folder)
        if not (own / ADMIN_KEY).exists():
            with os.fdopen(os.open(own / ADMIN_KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
        nats_files.update_users(own / AUTH_FOLDER, roles, topology)
        write_accounts(folder, topology)
    except OSError as error:
        raise CommandFailed(f"{error.filename or own}: cannot be written: {error.strerror}") from error
    except SetupError as error:
        raise CommandFailed(str(error)) from error
    return own


def remove_tenant(folder: Path, name: str, topology: Topology) -> None:
    """Remove the tenant's folder and its account; what the account has stored stays with the server. Raises
    CommandFailed."""
    own = folder / name
    if not (own / TENANT_FILE).exists():
        known = ", ".join(one.name for one in tenants_in(folder)) or "none"
        raise CommandFailed(f"there is no tenant {name!r} in {folder}; there are: {known}")
    shutil.rmtree(own)
    write_accounts(folder, topology)


def write_accounts(folder: Path, topology: Topology) -> Path:
    """Rewrite the server's file and return it. Raises OSError, SetupError, CommandFailed."""
    file = folder / ACCOUNTS_FILE
    accounts = [_account(own) for own in tenants_in(folder)]
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(accounts_file(file.name, accounts, topology))
    fresh.replace(file)
    return file


def _account(own: Path) -> Account:
    auth = own / AUTH_FOLDER
    roles = nats_files.known_roles(auth)
    keys = {role.user: read_key(nats_files.key_file(auth, role.user)).public for role in roles}
    return Account(own.name, roles, keys, read_tenant(own).storage_bytes)


def _check_hosts(folder: Path) -> None:
    owners: dict[str, str] = {}
    for own in tenants_in(folder):
        for host in read_tenant(own).hosts:
            if host in owners:
                raise CommandFailed(f"{host} is the host of {owners[host]} and of {own.name}: name it in one of them")
            owners[host] = own.name


class TenantSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The specification of a tenant; files next to it have its keys."""

    hosts: Annotated[list[str], Meta(min_length=1)]
    """The names by which people and programs reach it, in lower case and without a port. They are no other tenant's."""
    auth: Literal["keys", "oidc", "keys,oidc"] = "keys"
    """The ways in which people and programs authenticate."""
    key_rate: Annotated[float, Meta(ge=0.01)] = 100.0
    """The rate, in requests a second, of a key without its own rate."""
    keep_days: Annotated[float, Meta(ge=0)] | None = None
    """Days after its end at which a run is removed; as the process has it unless set."""
    storage_bytes: Annotated[int, Meta(ge=1)] | None = None
    """The most that its account may store; as much as there is unless set."""
    oidc: dict[str, Any] | None = None
    """Its provider: the settings `CADRE_OIDC_<FIELD>` by field in lower case. The secret lies in a file."""


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    api_version: Literal["cadre.dev/v1"] = msgspec.field(name="apiVersion")
    kind: Literal["Tenant"]
    metadata: _Metadata
    spec: TenantSpec


def read_tenant(folder: Path) -> TenantSpec:
    """Return the tenant of a folder, which has its name. Raises SpecError with the file, the key and what is
    expected."""
    file = folder / TENANT_FILE
    data = read_yaml(file, SpecError)
    try:
        check_name("tenant", folder.name)
        document = msgspec.convert(data, _Document)
        if document.metadata.name != folder.name:
            raise SpecError(f"must be the folder's name, {folder.name!r}", key="metadata.name")
        for host in document.spec.hosts:
            if not _HOST.fullmatch(host):
                raise SpecError(
                    f"{host!r} is no host name: write it in lower case and without a port", key="spec.hosts"
                )
        if (document.spec.oidc is not None) != ("oidc" in document.spec.auth):
            raise SpecError("belongs with `oidc` in spec.auth, and that with it", key="spec.oidc")
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        raise SpecError(misfit.problem, key=misfit.place, files=(file,)) from error
    except SpecError as error:
        error.in_file(file)
        raise
    return document.spec


def tenant_document(name: str, hosts: list[str], storage_bytes: int | None) -> dict[str, Any]:
    """Return the document of a new tenant."""
    spec: dict[str, Any] = {"hosts": hosts, "auth": "keys"}
    if storage_bytes is not None:
        spec["storage_bytes"] = storage_bytes
    return {"apiVersion": "cadre.dev/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec}
