"""The NATS users of one `cadre up --secure`: created before the server starts, provisioned before services start.

Their keys are made anew at each start and are in no file, which tools could read: each service inherits its own
in a file without a name. Users that were added by `cadre auth init` keep the keys that they have in the folder.
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.connection.keys import Key, new_key, read_key, text_of
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.deploy import nats_files
from cadre.deploy.team_components import roles_of
from cadre.deploy.team_file import TeamSpec
from cadre.errors import CommandFailed
from cadre.protocol.nats_users import OPERATOR, team_roles
from cadre.protocol.topology import Topology
from cadre.settings import read_settings

SERVER_FILE = "up.conf"
"""Another one than that of `cadre auth init`, which knows other keys."""


class HandedKey(NamedTuple):
    """A key for a process that inherits `descriptors` and finds it at `path`."""

    path: str
    descriptors: tuple[int, ...]


class StackUsers:
    """The NATS users of the stack whose data folder is `data`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._folder = data / "auth"
        self.server_file = self._folder / SERVER_FILE
        self._handed: dict[str, HandedKey] = {}

    def create_keys(self, team: TeamSpec | None) -> None:
        """Creates a key for each service of the team. Raises SetupError, CommandFailed."""
        roles = team_roles([], [], [], memory=False) if team is None else roles_of(team)
        keys = {role.user: new_key(role.user) for role in roles}
        if (given := read_settings().nats_credentials) and (own := read_key(Path(given))).user == OPERATOR:
            # Somebody wants to be the operator beside the stack.
            keys[OPERATOR] = own
        wanted = nats_files.merged([*nats_files.known_roles(self._folder), *roles])
        settings = read_settings()
        topology = Topology(settings.shards, settings.prefix)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._handed = {user: self._hand_over(key) for user, key in keys.items()}
            added = {role.user: nats_files.key_file(self._folder, role.user) for role in wanted}
            keys |= {
                user: read_key(file) for user, file in added.items() if user not in keys and file.exists()
            }
            nats_files.write_public(self.server_file, wanted, keys, topology)
        except OSError as error:
            raise CommandFailed(
                f"{error.filename or self._folder}: cannot be written: {error.strerror}"
            ) from error

    def _hand_over(self, key: Key) -> HandedKey:
        file = nats_files.key_file(self._folder, key.user)
        if file.exists() and read_key(file) != key:
            # An earlier start, or `cadre auth init`, has left it: it is nobody's key any more.
            file.unlink()
        if not hasattr(os, "memfd_create"):
            file.touch(mode=0o600)
            file.write_text(text_of(key))
            return HandedKey(str(file), ())
        descriptor = os.memfd_create("nats-key")
        os.write(descriptor, text_of(key).encode())
        return HandedKey(f"/proc/self/fd/{descriptor}", (descriptor,))

    async def provision(self, nats: str) -> None:
        """Creates the streams and consumers of all users, which may not do so themselves.

        Raises as `provision_roles`.
        """
        key = self.key(OPERATOR).path
        settings = msgspec.structs.replace(read_settings(), nats_url=nats, nats_credentials=key)
        topology = await provision_roles(settings, nats_files.known_roles(self._folder))
        # Users may be made for more, before the shards grow.
        if topology.shards > settings.shards:
            raise CommandFailed(
                f"the streams in {self._data} have {topology.shards} shards, and the users were made for"
                f" {settings.shards}: start with CADRE_SHARDS={topology.shards}"
            )

    def key(self, user: str) -> HandedKey:
        """The key of a user of the stack."""
        return self._handed[user]
