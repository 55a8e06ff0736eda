"""The client lives through what a server, a network or a stranger may do to it, or the process says that it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import nats.errors
import pytest
import uvloop
from nats.aio.msg import Msg

from cadre.adapters.nats.connection.connect import connect, settled
from cadre.adapters.nats.connection.requests import request
from cadre.adapters.nats.peers import answer_peers
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.errors import TooLarge
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_server import NatsServer, free_port
from harness.patience import patience
from harness.texts import holds

T = Topology(1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path) as server:
        yield server


async def send_raw(server: NatsServer, command: bytes) -> None:
    """Send as a client that checks nothing; return once the server has taken it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"headers":true,"protocol":1}\r\n' + command + b"PING\r\n")
    assert await asyncio.wait_for(reader.readline(), patience()) == b"PONG\r\n"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "command",
    [
        b"PUB cadre.executor.t.i \xff\xfe 1\r\nx\r\n",
        b"HPUB cadre.executor.t.i 18 19\r\nNATS/1.0 100 \xff\r\n\r\nx\r\n",
        b"PUB cadre.executor.t.\xff 1\r\nx\r\n",
    ],
    ids=["reply", "status", "subject"],
)
async def test_bytes_that_are_no_text_make_nobody_deaf(server: NatsServer, command: bytes) -> None:
    one, other = [await connect(Settings(nats_url=server.url), "test") for _ in range(2)]
    everything = await one.subscribe("cadre.executor.>")
    await answer_peers(one, T, "t", "i", {"c"}.__contains__)
    await settled(one)
    await send_raw(server, command)
    assert (await everything.next_msg(timeout=patience())).data == b"x"
    answer = await request(other, T.executor("t", "i"), b"c", None, patience())
    assert answer.data == b"+"
    await one.close()
    await other.close()


def test_a_write_to_a_connection_that_was_just_lost_waits_for_the_next(server: NatsServer) -> None:
    """The flusher has died of the loss, and the reader has not seen it: the client still takes itself for connected."""

    async def lose() -> None:
        nc = await connect(Settings(nats_url=server.url), "test")
        heard = asyncio.Event()

        async def hear(_: object) -> None:
            heard.set()

        await nc.subscribe("b", cb=hear)
        other = await nc.subscribe("a")
        await settled(nc)
        reading = nc._reading_task
        assert reading is not None
        assert nc._flusher_task is not None
        reading.cancel()
        nc._flusher_task.cancel()
        await asyncio.wait({reading, nc._flusher_task})
        writer = nc._transport._io_writer  # type: ignore[union-attr]
        writer.transport.abort()
        await writer.wait_closed()
        assert nc.is_connected
        await other.unsubscribe()
        await nc.publish("b", b"x")
        await nc._process_op_err(ConnectionResetError("lost"))
        await asyncio.wait_for(heard.wait(), patience())
        await nc.close()

    uvloop.run(lose())


async def test_a_listener_that_fails_does_not_end_the_reading(server: NatsServer) -> None:
    nc = await connect(Settings(nats_url=server.url), "test")
    heard: list[bytes] = []

    def take(message: Msg) -> None:
        heard.append(message.data)
        if message.data == b"bad":
            raise ValueError("this listener fails")

    subscription = await nc.listen("told.*", take)
    for data in (b"bad", b"good"):
        await nc.publish("told.1", data)
    await settled(nc)
    assert heard == [b"bad", b"good"]
    await subscription.unsubscribe()
    await settled(nc)
    await nc.publish("told.1", b"too late")
    await settled(nc)
    assert (heard, nc.is_connected) == ([b"bad", b"good"], True)
    await nc.close()


async def test_a_flush_that_was_given_up_is_answered_without_harm(server: NatsServer) -> None:
    nc = await connect(Settings(nats_url=server.url), "test")
    flushing = asyncio.create_task(nc.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    await asyncio.wait({flushing})
    assert await jetstream.account(nc) is not None
    await nc.close()


def test_a_reconnect_that_is_cut_short_again_and_again_succeeds_in_the_end(tmp_path: Path) -> None:
    """Under uvloop, writing to a connection that was reset raises what no client expects."""
    server = NatsServer(tmp_path, jetstream=False)

    async def outlive() -> None:
        server.start()
        nc = await connect(Settings(nats_url=server.url), "test")
        server.kill()
        with Cutter(server.port) as cutter:
            await asyncio.to_thread(cutter.has_cut.wait, patience())
            assert cutter.has_cut.is_set()
        server.start()
        async with asyncio.timeout(patience()):
            while not nc.is_connected:  # noqa: ASYNC110 - of another thread's doing
                await asyncio.sleep(0.05)
        await settled(nc)
        await nc.close()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(outlive())
    finally:
        server.stop()


class Cutter:
    """Greets anyone who comes to the port as a server does, and resets the connection; `has_cut` after some of them."""

    ENOUGH = 5
    GREETING = b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true,"proto":1}\r\n'

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve)
        self._leaving = False
        self.has_cut = threading.Event()

    def __enter__(self) -> Cutter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        count = 0
        while not self._leaving:
            connection, _ = self._listener.accept()
            connection.sendall(self.GREETING)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            count += 1
            if count == self.ENOUGH:
                self.has_cut.set()


@pytest.mark.parametrize(("subject", "reply"), [("a b", ""), (" a", ""), ("a\t", ""), ("", ""), ("a", "b\r\nPUB c 0")])
async def test_a_subject_with_a_space_in_it_is_refused_before_it_is_sent(
    server: NatsServer, subject: str, reply: str
) -> None:
    nc = await connect(Settings(nats_url=server.url), "test")
    with pytest.raises(nats.errors.BadSubjectError):
        await nc.publish(subject, b"x", reply)
    await nc.flush()
    assert nc.is_connected
    await nc.close()


async def test_a_message_is_too_large_with_its_headers(server: NatsServer) -> None:
    settings = Settings(nats_url=server.url, shards=1)
    nc = await connect(settings, "test")
    await provision(nc, settings)
    with pytest.raises(TooLarge):
        await jetstream.append(nc, T.journal("t", "t"), bytes(nc.max_payload - 10), expect=0)
    assert nc.is_connected
    await nc.close()


@pytest.mark.parametrize("limit", [2, 6], ids=["while it starts", "soon after"])
def test_a_service_whose_server_refuses_to_go_on_ends_and_says_why(tmp_path: Path, limit: int) -> None:
    with NatsServer(tmp_path, more=f"max_subscriptions: {limit}\n") as server:
        tools = Path(__file__).parent / "executor_tools.py"
        environment = {**os.environ, "CADRE_NATS_URL": server.url, "CADRE_SHARDS": "1"}
        environment["CADRE_PORT"] = str(free_port())
        done = subprocess.run(
            [sys.executable, "-m", "cadre_tools", str(tools)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * patience(),
        )
    assert done.returncode == 5, done.stderr
    assert holds(done.stderr.splitlines()[-1], "cadre: tools", "maximum subscriptions exceeded")
