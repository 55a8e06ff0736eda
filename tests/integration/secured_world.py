"""A nats-server with a user for every service of a small team, and its users as somebody who has their key."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from nats.aio.client import Client

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.keys import read_key
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.deploy import nats_files
from cadre.protocol.nats_users import inbox_of, team_roles
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience

T = Topology(1)
TREE, RUN, CALL = "t1", "t1", "t1_1_0"
JOURNAL = T.journal(TREE, RUN)
BOSS = "cadre.in.0.boss.{}.t1.t1"
"""Inboxes of the agent `boss`, by who writes there."""

ROLES = team_roles(
    ["boss", "digger"],
    [("desk", ("look_up",)), ("yard", ("dig",))],
    ["default"],
    memory=True,
    calls={"boss": ("look_up",)},
)


class Secured:
    """The server, and where its users' keys are."""

    def __init__(self, folder: Path) -> None:
        self.auth = folder / "auth"
        nats_files.update_users(self.auth, ROLES, T)
        self.server = NatsServer(folder, more=f'include "auth/{nats_files.SERVER_FILE}"\n')

    def settings(self, user: str, **more: object) -> Settings:
        key = str(nats_files.key_file(self.auth, user))
        return Settings(nats_url=self.server.url, nats_credentials=key, shards=1, **more)  # type: ignore[arg-type]

    def rotate(self, user: str) -> None:
        """A new key, which the server learns of."""
        nats_files.update_users(self.auth, ROLES, T, rotate=[user])
        self.server.process.send_signal(signal.SIGHUP)

    @asynccontextmanager
    async def intruder(self, user: str) -> AsyncIterator[Intruder]:
        """Somebody with the user's key and a client of their own."""
        refusals: asyncio.Queue[str] = asyncio.Queue()

        async def note(error: Exception) -> None:
            refusals.put_nowait(str(error))

        nc = NatsClient(refusals.put_nowait)
        await nc.connect(
            self.server.url,
            nkeys_seed_str=read_key(nats_files.key_file(self.auth, user)).seed,
            inbox_prefix=inbox_of(user).encode(),
            error_cb=note,
        )
        try:
            yield Intruder(nc, refusals)
        finally:
            await nc.close()


class Intruder:
    def __init__(self, nc: Client, refusals: asyncio.Queue[str]) -> None:
        self.nc = nc
        self._refusals = refusals

    async def publish(self, subject: str, data: bytes = b"x") -> str:
        """Return what the server says against it. Raises TimeoutError when it says nothing."""
        await self.nc.publish(subject, data, reply=self.nc.new_inbox())
        return await self._refusal(subject)

    async def listen(self, subject: str) -> str:
        await self.nc.subscribe(subject)
        return await self._refusal(subject)

    async def _refusal(self, subject: str) -> str:
        async with asyncio.timeout(patience()):
            while f'"{subject.lower()}"' not in (said := await self._refusals.get()):
                pass
        return said

    async def ask(self, subject: str, data: bytes = b"", **headers: str) -> bytes:
        answer = await self.nc.request(subject, data, timeout=patience(), headers=headers or None)
        return answer.data


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """With everything provisioned."""
    one = Secured(folder)
    one.server.start()
    try:
        asyncio.run(provision_roles(one.settings("operator"), ROLES))
        yield one
    finally:
        one.server.stop()
