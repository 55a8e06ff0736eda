"""A store that was lost, is another one or refuses writes is reported by every service that had another."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, ASYNC230, ASYNC240

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.streams import jetstream, store_watch
from cadre.adapters.nats.streams.provision import STORE_REMEDY, check, provision
from cadre.adapters.nats.streams.store_watch import StoreWatch, refusal
from cadre.errors import BusFull
from cadre.local.nats_server import free_port
from cadre.settings import Settings, child_environment
from harness.full_server import FullServer, fill
from harness.nats_server import NATS_CONFIG, NatsServer, nats_binary
from harness.patience import patience
from harness.texts import holds

TOOL = '''
from cadre.tool import tool

@tool
def look(what: str) -> str:
    """Looks.

    Args:
        what: At this.
    """
    return what
'''


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[NatsClient]:
    nc = await connect(Settings(nats_url=url, shards=2), "test")
    yield nc
    await nc.close()


async def until_checked(watch: StoreWatch) -> str | None:
    """Return what the watch says once it has looked at the store after a lost connection."""
    async with asyncio.timeout(patience()):
        while (trouble := watch.trouble()) is not None and trouble.code == "store-unchecked":
            await asyncio.sleep(0.1)
    return trouble.text if trouble is not None else None


async def restarted(server: NatsServer, nc: NatsClient, store: Path | None) -> None:
    """Kills the server, takes its store away if one is named, starts it, and waits for the connection."""
    before = nc.stats["reconnects"]
    server.kill()
    if store is not None:
        shutil.rmtree(store)
    server.start()
    async with asyncio.timeout(patience()):
        while nc.stats["reconnects"] == before:
            await asyncio.sleep(0.05)


async def test_an_emptied_store_is_told_until_the_old_one_is_back(server: NatsServer, tmp_path: Path) -> None:
    store, kept = tmp_path / "store", tmp_path / "kept"
    async with connected(server.url) as nc:
        watch = StoreWatch(nc, await provision(nc, Settings(nats_url=server.url, shards=2)))
        task = await watch.start()
        await restarted(server, nc, None)
        assert await until_checked(watch) is None, "the same store again is none to speak of"
        server.stop()
        shutil.copytree(store, kept)
        server.start()
        await restarted(server, nc, store)
        assert "CADRE-0" in (await until_checked(watch) or "")
        await provision(nc, Settings(nats_url=server.url, shards=2))
        await watch.check()
        trouble = watch.trouble()
        assert trouble is not None
        assert trouble.code == "store-lost"
        assert holds(trouble.text, "CADRE-0", STORE_REMEDY)
        server.stop()
        shutil.rmtree(store)
        shutil.copytree(kept, store)
        server.start()
        await restarted(server, nc, None)
        assert await until_checked(watch) is None
        task.cancel()


async def test_every_service_is_not_ready_with_a_store_that_lost_its_streams(
    server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "look.py").write_text(TOOL)
    port = free_port(0, "the tools", "nothing")
    environment = child_environment(CADRE_NATS_URL=server.url, CADRE_SHARDS="1", CADRE_PORT=str(port))
    argv = [sys.executable, "-m", "cadre_tools", str(tmp_path / "look.py")]
    process = subprocess.Popen(argv, env=environment)
    try:
        await until_readyz(port, "ready")
        server.kill()
        shutil.rmtree(tmp_path / "store")
        server.start()
        await until_readyz(port, "store was lost")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def test_a_shard_that_refuses_is_told_until_it_stores_again(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as nc:
        topology = await provision(nc, Settings(nats_url=server.url, shards=2))
        watch = StoreWatch(nc, topology)
        (await watch.start()).cancel()
        monkeypatch.setattr(jetstream, "ANSWER_SECONDS", 1.0)
        name = topology.stream(1)
        config = (await jetstream.api(nc, f"STREAM.INFO.{name}"))["config"]
        await jetstream.api(nc, f"STREAM.UPDATE.{name}", config | {"sealed": True})
        said = []
        for _ in range(5):
            await watch.check()
            trouble = watch.trouble()
            said.append(trouble)
        first = next(number for number, lack in enumerate(said) if lack is not None)
        assert first < 2, "each shard has its turn"
        assert {lack.code for lack in said[first:] if lack is not None} == {store_watch.REFUSES}
        assert all(lack is not None and name in lack.text for lack in said[first:]), said


async def test_a_store_at_its_limit_goes_on_without_a_restart(tmp_path: Path) -> None:
    server = FullServer(tmp_path, 4 * 1024 * 1024)
    with server:
        async with connected(server.url) as nc:
            topology = await provision(nc, Settings(nats_url=server.url, shards=2))
            watch = StoreWatch(nc, topology)
            (await watch.start()).cancel()
            await fill(nc, topology)
            await watch.check()
            assert watch.trouble() is None, "it can be read, and runs can be removed"
            full = watch.full()
            assert full is not None
            assert full.code == store_watch.FULL != store_watch.REFUSES, "for those `cadre up` restarts its server"
            assert "`cadre runs remove`" in full.text
            assert [state for state, there in watch.states().items() if there] == ["full"]
            server.raise_limit(16 * 1024 * 1024)
            async with asyncio.timeout(patience()):
                while watch.full() is not None:
                    await asyncio.sleep(0.1)
                    await watch.check()


async def test_a_bucket_that_reached_its_own_limit_is_full(server: NatsServer) -> None:
    settings = Settings(nats_url=server.url, shards=1)
    async with connected(server.url) as nc:
        topology = await provision(nc, settings)
        watch = StoreWatch(nc, topology)
        (await watch.start()).cancel()
        name = f"OBJ_{topology.blob_bucket}"
        config = (await jetstream.api(nc, f"STREAM.INFO.{name}"))["config"]
        await jetstream.api(nc, f"STREAM.UPDATE.{name}", config | {"max_bytes": 200_000})
        await watch.check()
        assert watch.full() is None
        blobs = NatsBlobs(nc, topology)
        refs = [await blobs.put(bytes([n]) * 45_000) for n in range(4)]
        await watch.check()
        assert watch.trouble() is None, "it can be read, and runs can be removed"
        full = watch.full()
        assert full is not None
        assert (full.code, name in full.text) == (store_watch.FULL, True)
        assert [name in text for text in await store_watch.refusals(nc, settings)] == [True]
        with pytest.raises(BusFull):
            await blobs.put(b"x" * 45_000)
        assert await blobs.remove(refs[0])
        await watch.check()
        assert watch.full() is None


async def test_doctor_says_what_to_do_about_a_store_that_was_lost(server: NatsServer) -> None:
    async with connected(server.url) as nc:
        (text,) = await check(nc, Settings(nats_url=server.url))
    assert holds(text, "CADRE-0", STORE_REMEDY)


async def until_readyz(port: int, word: str) -> None:
    async with asyncio.timeout(patience()), httpx2.AsyncClient(trust_env=False) as client:
        text = ""
        while f"{word}" not in text or ("not ready" in text) != (word != "ready"):
            with contextlib.suppress(httpx2.HTTPError):
                text = (await client.get(f"http://127.0.0.1:{port}/readyz")).text
            await asyncio.sleep(0.1)


async def test_a_disk_that_was_full_is_told_until_the_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "ANSWER_SECONDS", 2.0)
    disk, port = tmp_path / "disk", free_port(0, "a server", "nothing")
    disk.mkdir()
    config = tmp_path / "nats.conf"
    config.write_text(
        NATS_CONFIG.format(port=port) + f'\njetstream {{ store_dir: "{disk}/store" }}\npid_file: "{disk}.pid"\n'
    )
    server = f"mount -t tmpfs -o size=24m tmpfs {disk} && exec sh -c 'while true; do {nats_binary()} -c {config}; done'"
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system")
    process = subprocess.Popen(["unshare", "-rm", "sh", "-c", server], stderr=subprocess.DEVNULL, process_group=0)
    ballast = Path(f"/proc/{process.pid}/root{disk}/ballast")
    try:
        async with connected(f"nats://127.0.0.1:{port}") as nc:
            topology = await provision(nc, Settings(nats_url=f"nats://127.0.0.1:{port}", shards=1))
            assert await refusal(nc, topology, range(topology.shards)) is None
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(65536))
            refused = None
            for number in range(40):
                # The blocks of a stream have some room of their own.
                with contextlib.suppress(Exception):
                    await jetstream.append(nc, topology.quarantine("t", number), bytes(60_000))
                refused = await refusal(nc, topology, range(topology.shards))
                if refused is not None:
                    break
            assert refused is not None
            assert refused.code == store_watch.REFUSES
            ballast.unlink()
            refused = await refusal(nc, topology, range(topology.shards))
            assert refused is not None, "space is not enough"
            assert refused.code == store_watch.REFUSES
            before = nc.stats["reconnects"]
            os.kill(int((tmp_path / "disk.pid").read_text()), signal.SIGTERM)
            async with asyncio.timeout(patience()):
                while (
                    nc.stats["reconnects"] == before or await refusal(nc, topology, range(topology.shards)) is not None
                ):
                    await asyncio.sleep(0.2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
