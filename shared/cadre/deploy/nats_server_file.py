"""The file of users that a nats-server includes: public keys and permissions, no secrets."""

import json
from collections.abc import Iterable, Mapping

from cadre.deploy.nats_users import Permissions, Role, permissions
from cadre.protocol.topology import Topology

_HEAD = """\
# Who may use this server, and for what. Made by `cadre auth init`, which writes it anew: change nothing here.
# A nats-server's own file takes it in with: include "{name}"
# It holds public keys only. Have the server read it again with: nats-server --signal reload=PID
"""


def server_file(name: str, roles: Iterable[Role], keys: Mapping[str, str], topology: Topology) -> str:
    """The text of the file `name`; `keys` are the public keys by user."""
    users = "\n".join(_user(role, keys[role.user], permissions(role, topology)) for role in roles)
    return f"{_HEAD.format(name=name)}\nauthorization {{\n  users: [\n{users}\n  ]\n}}\n"


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
