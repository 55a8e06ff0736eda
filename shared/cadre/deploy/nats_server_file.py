"""The files of users and of tenants' accounts that a nats-server includes: public keys and permissions, no secrets."""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cadre.protocol.nats_users import Permissions, Role, permissions
from cadre.protocol.topology import Topology

_HEAD = """\
# Who may use this server, and for what. Made by `cadre auth init`, which writes it anew: change nothing here.
# A nats-server's own file takes it in with: include "{name}"
# It holds public keys only. Have the server read it again with: nats-server --signal reload=PID
"""


_TENANTS_HEAD = """\
# The accounts of tenants, which see nothing of each other. Made by `cadre tenant`, which writes it anew.
# A nats-server's own file takes it in with: include "{name}"
# With accounts there is no JetStream for users that are in none of them.
"""


def server_file(name: str, roles: Iterable[Role], keys: Mapping[str, str], topology: Topology) -> str:
    """The text of the file `name`; `keys` are the public keys by user."""
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
    """The text of the file `name`, with an account for each tenant."""
    inner = "\n".join(_account(one, topology) for one in accounts)
    return f"{_TENANTS_HEAD.format(name=name)}\naccounts {{\n{inner}\n}}\n"


def _account(account: Account, topology: Topology) -> str:
    bound = "enabled" if account.storage_bytes is None else f"{{max_file: {account.storage_bytes}}}"
    users = "\n".join(
        _user(role, account.keys[role.user], permissions(role, topology)) for role in account.roles
    )
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
