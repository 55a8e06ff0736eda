"""A service that starts before its NATS user, the streams or its queues are there waits for them."""

import asyncio
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.adapters.nats.queues.queue import Queue
from cadre.delivery.retry import Setup
from cadre.deploy import nats_files
from cadre.errors import NotSetUpYet
from cadre.service.platform import open_platform
from cadre.settings import Settings
from harness.patience import patience
from harness.texts import holds
from integration.secured_world import ROLES, Secured, T


class Lacks:
    """The things that a service waited for, and the time of each change."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._changed = asyncio.Event()

    def add(self, lack: str) -> None:
        self.all.append(lack)
        self._changed.set()

    async def until(self, words: str) -> None:
        async with asyncio.timeout(patience()):
            while not self.all or words not in self.all[-1]:
                self._changed.clear()
                await self._changed.wait()


async def test_a_service_waits_for_its_user_the_streams_and_its_queue(tmp_path: Path) -> None:
    (tmp_path / "auth").mkdir()
    world = Secured(tmp_path)
    users = world.auth / nats_files.SERVER_FILE
    whole = users.read_text()
    nats_files.update_users(tmp_path / "other", ROLES[:1], T)
    users.write_text((tmp_path / "other" / nats_files.SERVER_FILE).read_text())
    world.server.start()
    try:
        lacks = Lacks()
        settings = world.settings("tools-desk", setup_seconds=patience())
        opening = asyncio.create_task(open_platform("tools", settings, waits=lacks.add))
        await lacks.until("does not know the key in")
        users.write_text(whole)
        world.server.process.send_signal(signal.SIGHUP)
        await lacks.until("stream CADRE-0 does not exist")
        await provision_roles(world.settings("operator"), [])
        platform = await asyncio.wait_for(opening, patience())
        assert lacks.all[-1] == ""
        consumer, subject = "tool-look_up", T.call_filter(0, "look_up")
        queue = Queue(platform.nc, T.stream(0), consumer, subject, partial(asyncio.sleep, 0), limit=1)
        starting = asyncio.create_task(queue.start())
        await lacks.until("consumer tool-look_up on CADRE-0 does not exist")
        await provision_roles(world.settings("operator"), ROLES)
        await asyncio.wait_for(starting, patience())
        await queue.drain(0)
        await platform.registry.stop()
        await platform.nc.close()
    finally:
        world.server.stop()


async def test_the_wait_has_an_end_and_the_reason_is_the_errors(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    world, other = Secured(tmp_path / "one"), Secured(tmp_path / "two")
    world.server.start()
    try:
        key = other.settings("gateway").nats_credentials
        stranger = Settings(nats_url=world.server.url, nats_credentials=key)
        lacks = Lacks()
        with pytest.raises(NotSetUpYet, match=re.escape(str(key))):
            await asyncio.wait_for(connect(stranger, "test", setup=Setup(0.5, lacks.add)), patience())
        assert holds(lacks.all[-1], key, "`cadre auth init`")
        with pytest.raises(NotSetUpYet, match="stream CADRE-0 does not exist"):
            await asyncio.wait_for(open_platform("gateway", world.settings("gateway", setup_seconds=0.5)), patience())
    finally:
        world.server.stop()
