"""kill -9 of a NATS server that is being written to: what it acknowledged is there when it comes back."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import RetryableError
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience

WRITERS = 16
KILLS = 3
BETWEEN_KILLS = 300
"""Appends that are acknowledged before the next kill."""


@pytest.mark.parametrize("sync", ["always", "120s"])
async def test_a_killed_server_loses_nothing_acknowledged(tmp_path: Path, sync: str) -> None:
    """No matter what the sync setting: what the process has written is the kernel's to keep, and the kernel lives
    on."""
    server = NatsServer(tmp_path, sync=sync)
    server.start()
    settings = Settings(nats_url=server.url, shards=1)
    nc = await connect(settings, "test")
    topology = await provision(nc, settings)
    acked: dict[int, bytes] = {}
    more = asyncio.Event()
    done = asyncio.Event()

    async def write(writer: int) -> None:
        run, number = f"w{writer}", 0
        subject = topology.effect(run, run, "boss", "pay")
        while not done.is_set():
            data = b"%d/%d" % (writer, number)
            number += 1
            try:
                acked[await jetstream.append(nc, subject, data)] = data
                more.set()
            except RetryableError:
                continue  # not acknowledged: it may be there or not

    async with asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(write(writer))
        for _ in range(KILLS):
            wanted = len(acked) + BETWEEN_KILLS
            while len(acked) < wanted:
                more.clear()
                await asyncio.wait_for(more.wait(), patience())
            server.kill()
            server.start()
        done.set()

    stream = topology.stream(0)
    held = {seq: await retry(partial(jetstream.get, nc, stream, seq), pauses=EVERY_SECOND) for seq in sorted(acked)}
    lost = [seq for seq, data in acked.items() if (one := held[seq]) is None or one.data != data]
    assert len(acked) > KILLS * BETWEEN_KILLS
    assert lost == []
    await nc.close()
    server.stop()
