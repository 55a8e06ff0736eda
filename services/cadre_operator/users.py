"""The NATS users of a namespace: a Secret with its key for each service, and the server's list of them all."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence

import msgspec

from cadre.adapters.nats.connection.keys import Key, key_in, new_key, text_of
from cadre.deploy.k8s.manifest import CADRE, Manifest, manifest
from cadre.deploy.k8s.values import Values
from cadre.deploy.nats_files import (
    KEY_FILE,
    ROLE_ANNOTATION,
    SERVER_FILE,
    SERVER_SECRET,
    merged,
    role_text,
    secret_name,
    server_file,
)
from cadre.errors import SettingError
from cadre.protocol.nats_users import Role
from cadre.protocol.topology import Topology


class Users:
    """The users whose keys the Secrets of a namespace hold, but for those Secrets that are `gone`."""

    def __init__(self, secrets: Sequence[Manifest], gone: Iterable[str] = ()) -> None:
        self._keys: dict[str, Key] = {}
        self._roles: dict[str, Role] = {}
        left_out = {*gone}
        for secret in secrets:
            found = None if secret["metadata"]["name"] in left_out else _user_in(secret)
            if found is not None:
                role, self._keys[found[0].user] = found
                self._roles[role.user] = role

    def secret(self, role: Role, namespace: str) -> Manifest:
        """Return the Secret with the key of the role's user: the key that it has, or a new one."""
        known = self._roles.get(role.user)
        [whole] = merged([role] if known is None else [known, role])
        self._roles[role.user] = whole
        key = self._keys.setdefault(role.user, new_key(role.user))
        return _secret(
            secret_name(role), namespace, KEY_FILE, text_of(key), {ROLE_ANNOTATION: role_text(whole)}
        )

    def server_secret(self, values: Values) -> Manifest:
        """Return the Secret with the server's list."""
        roles = [self._roles[user] for user in sorted(self._roles)]
        public = {user: key.public for user, key in self._keys.items()}
        text = server_file(SERVER_FILE, roles, public, Topology(values.nats.shards, values.nats.prefix))
        return _secret(SERVER_SECRET, values.namespace, SERVER_FILE, text, {})


def _user_in(secret: Manifest) -> tuple[Role, Key] | None:
    """Return the user whose key the Secret holds; None for another Secret."""
    written = (secret["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION)
    held = (secret.get("data") or {}).get(KEY_FILE)
    if not written or not held:
        return None
    try:
        role = msgspec.json.decode(written, type=Role)
        return role, key_in(b64decode(held).decode(), f"Secret {secret['metadata']['name']}")
    except (msgspec.MsgspecError, SettingError, ValueError):
        return None  # changed by hand: it is made again


def _secret(name: str, namespace: str, key: str, text: str, annotations: dict[str, str]) -> Manifest:
    about = {"name": name, "namespace": namespace, "labels": dict(CADRE), "annotations": annotations}
    return manifest("v1", "Secret", about, type="Opaque", data={key: b64encode(text.encode()).decode()})
