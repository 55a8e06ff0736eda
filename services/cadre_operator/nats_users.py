"""The NATS users of a namespace: a Secret with its key for each service, the server's list of them all, and whether the
server has read it.

A server that refuses one change of its configuration reads no users either, until it is started again.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from cadre.adapters.nats.connection.connect import connect
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
from cadre.errors import CadreError, NotSetUpYet, SettingError
from cadre.protocol.nats_users import Role
from cadre.protocol.topology import Topology
from cadre.settings import Settings

READ_WITHIN_SECONDS = 20.0
"""Time in which a server reads a changed list: the kubelet syncs the Secret at once, and the reloader looks often."""

_ASK_SECONDS = 3.0


class NatsList:
    """Tracks whether the servers of all namespaces know the users whose services are not ready."""

    def __init__(self) -> None:
        self._unknown_since: dict[tuple[str, str], float] = {}
        """By namespace and Secret of the key, on the clock of this process."""

    async def unread(self, values: Values, secrets: Sequence[Manifest]) -> str:
        """Return what is wrong where the server has not known one of the keys in the Secrets for a while; nothing as
        long as that is not certain, or the server cannot be asked."""
        places = {(values.namespace, one["metadata"]["name"]): one for one in secrets}
        for place in [one for one in self._unknown_since if one[0] == values.namespace and one not in places]:
            del self._unknown_since[place]
        if values.nats.tls.secret:
            return ""  # the certificate that it is known by is the services'
        # Side by side: a server that does not answer holds a round up once.
        unknown = await asyncio.gather(*(_is_unknown(values.nats.url, one["data"]) for one in places.values()))
        for place, is_unknown in zip(places, unknown, strict=True):
            if not is_unknown:
                self._unknown_since.pop(place, None)
                continue
            since = self._unknown_since.setdefault(place, time.monotonic())
            if (seconds := time.monotonic() - since) >= READ_WITHIN_SECONDS:
                where = values.nats.namespace or values.namespace
                return (
                    f"NATS at {values.nats.url} has not read its list of users for {seconds:.0f} s: it does not know"
                    f" the key in Secret {place[1]}. Its log says why it refuses its configuration; a restart"
                    f" makes it: `kubectl -n {where} rollout restart statefulset/nats`"
                )
        return ""


async def _is_unknown(url: str, data: Mapping[str, str]) -> bool:
    with TemporaryDirectory(prefix="cadre-") as folder:
        key = Path(folder) / KEY_FILE
        key.write_bytes(b64decode(data[KEY_FILE]))
        key.chmod(0o600)
        try:
            nc = await connect(Settings(nats_url=url, nats_credentials=str(key)), "cadre operator", wait=False)
        except NotSetUpYet:
            return True
        except CadreError:
            return False
        await nc.close()
    return False


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
        return _secret(secret_name(role), namespace, KEY_FILE, text_of(key), {ROLE_ANNOTATION: role_text(whole)})

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
