"""A nats-server whose account may store only so much, that can be filled up, and given more room."""

import re
import signal
from pathlib import Path
from uuid import uuid4

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusFull
from cadre.protocol.topology import Topology
from harness.nats_server import NatsServer

_ACCOUNT = """
accounts {{
  TEAM {{
    jetstream {{ max_file: {limit}, max_mem: 16777216 }}
    users: [ {{ user: team, password: team }} ]
  }}
}}
no_auth_user: team
"""
_PIECE = 200_000


class FullServer(NatsServer):
    """Everybody who connects is in one account with a limit in bytes."""

    def __init__(self, folder: Path, limit: int, *, port: int = 0) -> None:
        super().__init__(folder, port=port, more=_ACCOUNT.format(limit=limit))

    def raise_limit(self, limit: int) -> None:
        """While it runs."""
        text = self._config.read_text()
        self._config.write_text(re.sub(r"max_file: \d+", f"max_file: {limit}", text))
        self.process.send_signal(signal.SIGHUP)


async def fill(nc: Client, topology: Topology) -> None:
    """Stores what no one reads until the server takes nothing more, however small."""
    for size in (_PIECE, _PIECE // 10, _PIECE // 100, 100, 1):
        while True:
            tree = uuid4().hex
            subject = f"{topology.prefix}.code.{topology.shard(tree)}.nobody.{tree}.{tree}"
            try:
                await jetstream.append(nc, subject, b"o" * size)
            except BusFull:
                break
