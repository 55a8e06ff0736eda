"""Tests of what is under way when a process ends: reads of a connection and of a stream, the import of a client
library."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.connection.connect import connect, settled
from cadre.adapters.nats.reading.reader import OrderedReader
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.adapters.nats.streams.provision import provision
from cadre.errors import BusUnavailable
from cadre.settings import Settings
from harness.patience import patience

SLOW_LIBRARY = """
import sys, time
import os
os.write(1, b"importing\\n")  # no lock to be held while the process ends
time.sleep(600)
"""

PROCESS = """
import asyncio, sys
from cadre.adapters.models.openai_model import OpenAIModel
from cadre.engine.model_request import ModelRequest
from cadre.settings import ModelSettings
from cadre.spec.model import ModelSpec

async def main():
    model = OpenAIModel(ModelSpec(url="http://127.0.0.1:9/v1", name="any"), ModelSettings(), None)
    calling = asyncio.create_task(model.complete(ModelRequest(messages=[]), None))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.readline()
    calling.cancel()
    await asyncio.wait({calling})
    await model.close()

asyncio.run(main())
"""


async def test_a_read_whose_connection_is_closed_says_that_the_bus_is_gone(settings: Settings) -> None:
    """And so does one that begins afterwards: anyone who asked a gateway that is stopping is asked to come back."""
    reader = await connect(settings, "reader")
    silent = await connect(settings, "a stream that never answers")
    asked = asyncio.Event()

    async def hear(_: Msg) -> None:
        asked.set()

    await silent.subscribe("$JS.API.DIRECT.GET.SILENT", cb=hear)
    await settled(silent)
    reading = asyncio.create_task(jetstream.batch(reader, "SILENT", {"seq": 1, "batch": 1}))
    await asyncio.wait_for(asked.wait(), patience())
    await reader.close()
    with pytest.raises(BusUnavailable):
        await reading
    with pytest.raises(BusUnavailable):
        await jetstream.batch(reader, "SILENT", {"seq": 1, "batch": 1})
    await silent.close()


async def test_a_reader_stops_when_told_so_together_with_news(settings: Settings) -> None:
    """A gateway that is stopped under load: entries come in while its readers are cancelled."""
    nc = await connect(settings, "reader")
    topology = await provision(nc, settings)
    subject = topology.journal("tree", "tree")
    stream = topology.stream_of("tree")
    handled: list[StoredMessage] = []

    async def handle(held: StoredMessage) -> None:
        handled.append(held)

    subscribe, stopping = nc.subscribe, asyncio.Event()

    async def meddling(to: str, cb: Callable[[Msg], Awaitable[None]]) -> Subscription:
        async def cancel_behind(message: Msg) -> None:
            await cb(message)
            if stopping.is_set():
                asyncio.get_running_loop().call_soon(running.cancel)

        found: Subscription = await subscribe(to, cb=cancel_behind)
        return found

    reader = OrderedReader(nc, stream, subject, 0, handle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nc, "subscribe", meddling)
        running = asyncio.create_task(reader.run())
        await asyncio.wait_for(reader.caught_up.wait(), patience())
    stopping.set()
    await jetstream.append(nc, subject, b"{}")
    ended, _ = await asyncio.wait({running}, timeout=patience())
    running.cancel()
    assert ended, handled
    await nc.close()


def test_a_process_ends_while_its_model_client_is_being_imported(tmp_path: Path) -> None:
    (tmp_path / "openai.py").write_text(SLOW_LIBRARY)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}){PROCESS}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "importing\n"
            process.stdin.write("enough\n")
            process.stdin.flush()
            assert process.wait(timeout=patience()) == 0
        finally:
            process.kill()
