"""A connection that breaks: anyone who waits for an answer over it learns at once, and tries again."""

import asyncio
from pathlib import Path

import nats.errors
import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable, NotPermitted, OutcomeUnknown
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
    with pytest.raises(OutcomeUnknown) as unknown:
        await asking
    assert not isinstance(unknown.value.__cause__, TimeoutError), "it is known at once"
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
    with pytest.raises(BusUnavailable, match="TimeoutError"):
        await connect(Settings(nats_url=url), "test", wait=False)
    server.close()


async def test_requests_are_answered_after_the_first_subscription_to_answers_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NatsServer(tmp_path) as server:
        nc = await connect(Settings(nats_url=server.url), "test")
        listen = nc.listen

        async def fail(*_: object) -> None:
            monkeypatch.setattr(nc, "listen", listen)
            raise nats.errors.OutboundBufferLimitError

        monkeypatch.setattr(nc, "listen", fail)
        with pytest.raises(BusUnavailable):
            await jetstream.api(nc, "INFO")
        assert (await jetstream.api(nc, "INFO"))["streams"] == 0
        await nc.close()


_MAY_NOT_LISTEN = """
authorization {
  users: [ { user: team, password: team, permissions: { publish: ">", subscribe: { deny: "_INBOX.>" } } } ]
}
"""


async def test_a_user_that_may_not_read_its_answers_is_told_at_once(tmp_path: Path) -> None:
    with NatsServer(tmp_path, more=_MAY_NOT_LISTEN) as server:
        nc = await connect(Settings(nats_url=server.url.replace("//", "//team:team@")), "test")
        for _ in range(2):
            with pytest.raises(NotPermitted, match="subscribe"):
                await asyncio.wait_for(jetstream.api(nc, "INFO"), jetstream.ANSWER_SECONDS / 2)
        await nc.close()
