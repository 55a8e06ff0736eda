"""Write the folder of `cadre auth init`: a key per service, the roles, and the users for the nats-server.

With `apart` each service has a folder below it, so that every service can be given its own key and no other:
`USER/nats.nk`, and `server/` with what is not secret.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.connection.keys import Key, new_key, read_key, text_of
from cadre.deploy.k8s.components import object_name
from cadre.errors import CommandFailed, SettingError
from cadre.protocol.nats_users import Permissions, Role, permissions
from cadre.protocol.topology import Topology

SERVER_FILE = "auth.conf"
ROLES_FILE = "roles.json"
KEY_FILE = "nats.nk"
"""The name of a key's file in a separate folder, and of its key in a Secret."""

SERVER_SECRET = "cadre-nats-server"
"""Name of the Secret that has the server's file."""

ROLE_ANNOTATION = "cadre.dev/nats-role"
"""The annotation of a key's Secret that names its role: with these the list of users can be rebuilt."""

_SERVER_FOLDER = "server"
_SECRET_MODE, _PUBLIC_MODE = 0o600, 0o644

_HEAD = """\
# Who may use this server, and for what. Made by `cadre auth init`, which overwrites it: change nothing here.
# A nats-server's own file takes it in with: include "{name}"
# It holds public keys only. Have the server read it again with: nats-server --signal reload=PID
"""

_TENANTS_HEAD = """\
# The accounts of tenants, which see nothing of each other. Made by `cadre tenant`, which overwrites it.
# A nats-server's own file takes it in with: include "{name}"
# With accounts there is no JetStream for users that are in none of them.
"""


class UserChanges(NamedTuple):
    """Names of the users whose keys were kept, are new, or were removed."""

    kept: list[str]
    new: list[str]
    removed: list[str]


def key_file(folder: Path, user: str, *, apart: bool = False) -> Path:
    """File of a user's key."""
    return folder / user / KEY_FILE if apart else folder / f"{user}.nk"


def server_folder(folder: Path, *, apart: bool = False) -> Path:
    """Return the folder of SERVER_FILE and ROLES_FILE."""
    return folder / _SERVER_FOLDER if apart else folder


def known_roles(folder: Path, *, apart: bool = False) -> list[Role]:
    """Return the roles of earlier calls. Raises CommandFailed."""
    file = server_folder(folder, apart=apart) / ROLES_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Role])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise CommandFailed(f"{file} cannot be read ({error}): remove it, and name all services again") from error


def update_users(
    folder: Path,
    roles: Iterable[Role],
    topology: Topology,
    *,
    rotate: Iterable[str] = (),
    remove: Iterable[str] = (),
    apart: bool = False,
) -> UserChanges:
    """Bring the folder up to date: keys are kept unless their user is in `rotate`; users in `remove` are removed.

    Keys can be read by their owner alone. Raises CommandFailed.
    """
    wanted = {role.user: role for role in merged([*known_roles(folder, apart=apart), *roles])}
    unknown = {*rotate, *remove} - {*wanted}
    if unknown:
        raise CommandFailed(
            f"there is no user {', '.join(sorted(unknown))} in {folder}; there are: {', '.join(wanted)}"
        )
    removed = sorted({*remove})
    for user in removed:
        del wanted[user]
    try:
        keys, new = _keys(folder, wanted, {*rotate}, apart=apart)
        public = server_folder(folder, apart=apart)
        _enter(public, 0o755 if apart else 0o700)
        write_public(public / SERVER_FILE, wanted.values(), keys, topology)
        for user in removed:
            key_file(folder, user, apart=apart).unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(
            f"{error.filename or folder}: cannot be written: {error.strerror}; choose another folder with -o"
        ) from error
    except SettingError as error:
        raise CommandFailed(f"{error}; or make a new one with --rotate") from error
    return UserChanges([user for user in wanted if user not in new], new, removed)


def merged(roles: Iterable[Role]) -> list[Role]:
    """Return the roles, each user once: as it was named last."""
    found: dict[str, Role] = {}
    for role in roles:
        found[role.user] = _with_earlier_calls(role, found.get(role.user))
    return [*found.values()]


def write_public(file: Path, roles: Iterable[Role], keys: Mapping[str, Key], topology: Topology) -> None:
    """Write the server's file of the users that have a key, and ROLES_FILE with all of them next to it. Raises
    OSError."""
    roles = [*roles]
    _write(file.with_name(ROLES_FILE), msgspec.json.format(msgspec.json.encode(roles)).decode())
    public = {user: key.public for user, key in keys.items()}
    _write(file, server_file(file.name, [role for role in roles if role.user in keys], public, topology))


def _with_earlier_calls(role: Role, before: Role | None) -> Role:
    """Return the role with the tools that it might call before as well: runs that began then go on with them."""
    if before is None or before.calls is None or role.calls is None:
        return role
    return msgspec.structs.replace(role, calls=tuple(dict.fromkeys([*before.calls, *role.calls])))


def _keys(folder: Path, users: Iterable[str], rotated: set[str], *, apart: bool) -> tuple[dict[str, Key], list[str]]:
    """Return the keys by user, and the users whose keys are new."""
    keys, new = {}, []
    for user in users:
        file = key_file(folder, user, apart=apart)
        _enter(file.parent, 0o700)
        if file.exists() and user not in rotated:
            keys[user] = read_key(file)
            file.chmod(_SECRET_MODE)
            continue
        keys[user] = new_key(user)
        new.append(user)
        _write(file, text_of(keys[user]), _SECRET_MODE)
    return keys, new


def secrets(folder: Path, namespace: str, *, apart: bool = False, users: Collection[str] | None = None) -> str:
    """Return the keys as Kubernetes Secrets, one per service (of `users`, if given), and the server's file as one more:
    to be applied, not kept."""
    public = server_folder(folder, apart=apart) / SERVER_FILE
    keys = [(role, key_file(folder, role.user, apart=apart)) for role in known_roles(folder, apart=apart)]
    keys = [(role, file) for role, file in keys if users is None or role.user in users]
    return "---\n".join(
        [
            *(
                _secret(secret_name(role), namespace, KEY_FILE, file.read_text(), role_text(role))
                for role, file in keys
            ),
            _secret(SERVER_SECRET, namespace, SERVER_FILE, public.read_text()),
        ]
    )


def role_text(role: Role) -> str:
    """Return the value of ROLE_ANNOTATION."""
    return msgspec.json.encode(role).decode()


def _secret(name: str, namespace: str, key: str, text: str, role: str = "") -> str:
    annotations = f"  annotations:\n    {ROLE_ANNOTATION}: '{role}'\n" if role else ""
    lines = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
    return (
        "apiVersion: v1\nkind: Secret\n"
        f"metadata:\n  name: {name}\n  namespace: {namespace}\n"
        f"  labels: {{app.kubernetes.io/part-of: cadre}}\n{annotations}"
        f"stringData:\n  {key}: |\n{lines}"
    )


def secret_name(role: Role) -> str:
    """Name of the Secret with the role's key, as rendered manifests refer to it (the value `nats.credentials`)."""
    return f"cadre-nats-{object_name('provision' if role.kind == 'operator' else role.kind, role.name)}"


def _enter(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)


def _write(file: Path, text: str, mode: int = _PUBLIC_MODE) -> None:
    """Replace the file atomically; it never has more permissions than `mode`."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as opened:
        opened.write(text)
    fresh.chmod(mode)
    fresh.replace(file)


def server_file(name: str, roles: Iterable[Role], keys: Mapping[str, str], topology: Topology) -> str:
    """Return the text of the file `name`; `keys` are the public keys by user."""
    users = "\n".join(_user(role, keys[role.user], permissions(role, topology)) for role in roles)
    return f"{_HEAD.format(name=name)}\nauthorization {{\n  users: [\n{users}\n  ]\n}}\n"


class Account(NamedTuple):
    """The account of a tenant."""

    name: str
    roles: list[Role]
    keys: Mapping[str, str]
    """The public keys by user."""
    storage_bytes: int | None
    """The most that it may store; None: as much as there is."""


def accounts_file(name: str, accounts: Iterable[Account], topology: Topology) -> str:
    """Return the text of the file `name`, with an account for each tenant."""
    inner = "\n".join(_account(one, topology) for one in accounts)
    return f"{_TENANTS_HEAD.format(name=name)}\naccounts {{\n{inner}\n}}\n"


def _account(account: Account, topology: Topology) -> str:
    bound = "enabled" if account.storage_bytes is None else f"{{max_file: {account.storage_bytes}}}"
    users = "\n".join(_user(role, account.keys[role.user], permissions(role, topology)) for role in account.roles)
    return f"  {json.dumps(account.name)} {{\n    jetstream: {bound}\n    users: [\n{users}\n    ]\n  }}"


def _user(role: Role, key: str, allowed: Permissions) -> str:
    lines = [f"    # {role.user}", "    {", f"      nkey: {key}"]
    if role.kind != "operator":
        lines += [
            "      permissions: {",
            f"        publish: {{{_list('allow', allowed.publish)}{_list('deny', allowed.never)}}}",
            f"        subscribe: {{{_list('allow', allowed.subscribe)}}}",
        ]
        lines.append("      }")
    return "\n".join([*lines, "    }"])


def _list(what: str, subjects: list[str]) -> str:
    if not subjects:
        return ""
    inner = "\n".join(f"          {json.dumps(subject)}" for subject in subjects)
    return f"\n        {what}: [\n{inner}\n        ]\n        "
