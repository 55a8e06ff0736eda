"""A stack whose services are NATS users, each with its key in a file, as in a deployment."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.deploy import nats_files
from cadre.protocol.nats_users import Role
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.stack import Service, Stack


class SecuredStack(Stack):
    """Use it as a context manager, like any; its streams and queues are there."""

    def __init__(self, folder: Path, roles: Sequence[Role]) -> None:
        self._auth, self._roles = folder / "auth", roles
        nats_files.update_users(self._auth, roles, Topology(2))
        super().__init__(folder, nats=f'include "auth/{nats_files.SERVER_FILE}"\n')

    def __enter__(self) -> "SecuredStack":
        super().__enter__()
        key = str(self.key("operator"))
        asyncio.run(provision_roles(Settings(nats_url=self.nats.url, shards=2, nats_credentials=key), self._roles))
        return self

    def key(self, user: str) -> Path:
        return nats_files.key_file(self._auth, user)

    def add_as(self, user: str, *arguments: str | Path, name: str = "") -> Service:
        """A service as this NATS user, not started yet."""
        return self.add(name or user, *arguments, start=False, CADRE_NATS_CREDENTIALS=str(self.key(user)))

    def rotate(self) -> None:
        """New keys for all, which the server learns of."""
        users = [role.user for role in self._roles]
        nats_files.update_users(self._auth, self._roles, Topology(2), rotate=users)
        self.nats.process.send_signal(signal.SIGHUP)

    def refusals(self) -> list[str]:
        """Return what the server has refused anybody, by its log."""
        return [line for line in (self.folder / "nats.log").read_text().splitlines() if "Violation" in line]
