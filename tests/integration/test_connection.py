"""A connection that breaks: whoever waits for an answer over it is told at once, and tries again."""

import asyncio
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable, OutcomeUnknown
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience


async def test_an_open_request_does_not_outlive_its_connection(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.start()
    nc = await connect(Settings(nats_url=server.url), "test")
    asked = asyncio.Event()

    async def say_nothing(_: object) -> None:
        asked.set()

    await nc.subscribe("deaf", cb=say_nothing)
    asking = asyncio.create_task(jetstream.append(nc, "deaf", b""))
    await asyncio.wait_for(asked.wait(), patience())
    server.kill()
    with pytest.raises(OutcomeUnknown, match="the connection was lost"):
        await asking
    await nc.close()


async def test_a_list_of_servers_may_have_dead_ones_and_blanks(tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    dead, alive = NatsServer(tmp_path / "dead"), NatsServer(tmp_path)
    alive.start()
    nc = await connect(Settings(nats_url=f"{dead.url}, {alive.url}"), "test", wait=False)
    assert nc.is_connected
    await nc.close()
    alive.stop()


async def test_a_server_of_another_kind_is_told_apart_from_none() -> None:
    """An HTTP server waits to be asked, and so does a client of NATS."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(BusUnavailable, match=r"\(TimeoutError: what answers there does not speak NATS\)"):
        await connect(Settings(nats_url=url), "test", wait=False)
    server.close()
