"""Readers of event streams who do not read: each costs the gateway little, and what it cost is given back."""

import asyncio
import socket
from urllib.parse import urlsplit

from cadre.journal import events as ev
from harness.patience import patience
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, new_run

READERS = 200
ENTRIES = 128
TEXT = "x" * 16_000
BYTES_PER_READER = 640 * 1024


async def test_readers_who_do_not_read_cost_little(world: World, gateway: GatewayProcess) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    for step in range(ENTRIES):
        await scribe.write(ev.ModelAnswered(purpose="act", step=step, attempt=1, content=TEXT))
    await world.listed(run)
    before = gateway.peak_bytes()
    await _open_and_close(world, run)
    first = gateway.peak_bytes()
    assert first - before < READERS * BYTES_PER_READER
    await _open_and_close(world, run)
    assert gateway.peak_bytes() - first < (first - before) / 2, "what the first ones held was there for the others"

    await scribe.write(FINISHED)
    assert [one.name for one in await world.read(run)][-2:] == ["run.finished", "end"]


async def _open_and_close(world: World, run: str) -> None:
    where = urlsplit(str(world.http.base_url))
    readers: list[socket.socket] = []
    for _ in range(READERS):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        await asyncio.get_running_loop().sock_connect(reader, (where.hostname, where.port))
        await asyncio.get_running_loop().sock_sendall(
            reader, b"GET /v1/runs/%s/events HTTP/1.1\r\nHost: x\r\n\r\n" % run.encode()
        )
        readers.append(reader)

    async with asyncio.timeout(patience()):
        for reader in readers:
            await asyncio.get_running_loop().sock_recv(reader, 1)
    for _ in range(20):  # the gateway has had time to fill what it fills
        assert (await world.http.get("/v1/agents")).status_code == 200
    for reader in readers:
        reader.close()
