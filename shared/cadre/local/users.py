"""The NATS users of one `cadre up --secure`: created before the server starts, provisioned before services start."""

from pathlib import Path

import msgspec

from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.deploy.nats_users import OPERATOR, team_roles
from cadre.local import nats_files
from cadre.local.exit_codes import CommandFailed
from cadre.local.roles import roles_of
from cadre.local.team_file import TeamSpec
from cadre.protocol.topology import Topology
from cadre.settings import read_settings


class StackUsers:
    """The NATS users of the stack whose data folder is `data`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._folder = data / "auth"
        self.server_file = self._folder / nats_files.SERVER_FILE

    def create_keys(self, team: TeamSpec | None) -> None:
        """Creates a key for each service of the team that has none yet. Raises SetupError, CommandFailed."""
        roles = team_roles([], [], [], memory=False) if team is None else roles_of(team)
        settings = read_settings()
        nats_files.update_users(self._folder, roles, Topology(settings.shards, settings.prefix))

    async def provision(self, nats: str) -> None:
        """Creates the streams and consumers of all users, which may not do so themselves.

        Raises as `provision_roles`.
        """
        key = str(nats_files.key_file(self._folder, OPERATOR))
        settings = msgspec.structs.replace(read_settings(), nats_url=nats, nats_credentials=key)
        topology = await provision_roles(settings, nats_files.known_roles(self._folder))
        if topology.shards != settings.shards:
            raise CommandFailed(
                f"the streams in {self._data} have {topology.shards} shards, and the users were made for"
                f" {settings.shards}: start with CADRE_SHARDS={topology.shards}"
            )

    def environment(self, user: str) -> dict[str, str]:
        """Environment variables of a process that is this user."""
        return {"CADRE_NATS_CREDENTIALS": str(nats_files.key_file(self._folder, user))}
