"""Ask NATS whether it has read the list of its users, for services that do not become ready.

A server that refuses one change of its configuration reads no users either, until it is started again.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cadre.adapters.nats.connection.connect import connect
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.values import Values
from cadre.deploy.nats_files import KEY_FILE
from cadre.errors import CadreError, NotSetUpYet
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
        unknown = await asyncio.gather(
            *(_is_unknown(values.nats.url, one["data"]) for one in places.values())
        )
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
            nc = await connect(
                Settings(nats_url=url, nats_credentials=str(key)), "cadre operator", wait=False
            )
        except NotSetUpYet:
            return True
        except CadreError:
            return False
        await nc.close()
    return False
