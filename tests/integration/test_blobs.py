"""Blobs and images whose writers are cut off, meet or die, what is swept up behind them, and many reads at once."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.object_store import NatsSnapshots
from cadre.adapters.nats.reading.tail import Read, Tail
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import encode
from cadre.errors import BlobMissing, BusFull, RetryableError
from cadre.protocol.messages import Lifecycle, Spilled
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience

NEVER_YOUNG = -60.0


class Store(NamedTuple):
    nc: NatsClient
    topology: Topology

    @property
    def blobs(self) -> NatsBlobs:
        return NatsBlobs(self.nc, self.topology)

    @property
    def images(self) -> NatsSnapshots:
        return NatsSnapshots(self.nc, self.topology)

    @property
    def bucket(self) -> str:
        return self.topology.blob_bucket

    @property
    def entries(self) -> str:
        return f"$O.{self.bucket}.M."

    async def chunks(self) -> dict[str, int]:
        """Return how many there are on each subject."""
        query = {"subjects_filter": f"$O.{self.bucket}.C.>"}
        answer = await jetstream.api(self.nc, f"STREAM.INFO.OBJ_{self.bucket}", query)
        return answer["state"].get("subjects") or {}

    async def lose_content(self) -> None:
        assert await jetstream.purge(self.nc, f"OBJ_{self.bucket}", f"$O.{self.bucket}.C.*")


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    nc = await connect(settings, "test")
    yield Store(nc, await provision(nc, settings))
    await nc.close()


@pytest.fixture
async def other(settings: Settings, store: Store) -> AsyncIterator[Store]:
    """The same with its own connection."""
    nc = await connect(settings, "other")
    yield Store(nc, store.topology)
    await nc.close()


def before_the_entry(
    store: Store, monkeypatch: pytest.MonkeyPatch, do: Callable[[], Awaitable[object]], *, deaf: bool = False
) -> None:
    """Something happens in the moment before the next entry is sent, or (`deaf`) its answer gets lost."""
    publish, happened = store.nc.publish, False

    async def disturbed(
        subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        nonlocal happened
        if subject.startswith(store.entries) and not happened:
            happened = True
            await do()
            reply = store.nc.new_inbox() if deaf else reply
        await publish(subject, payload, reply, headers)

    monkeypatch.setattr(store.nc, "publish", disturbed)


def lose_an_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "ANSWER_SECONDS", 1.0)
    before_the_entry(store, monkeypatch, lambda: asyncio.sleep(0), deaf=True)


async def insistently(put: Callable[[], Awaitable[str]]) -> str:
    """As everybody does who puts a blob."""
    while True:
        try:
            return await put()
        except RetryableError:
            continue


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cadre.adapters.nats.object_store._REPLICA_SECONDS", 0.1)


def never_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cadre.adapters.nats.blobs.YOUNG_SECONDS", NEVER_YOUNG)


# --- what is said to be stored is there


async def test_a_blob_is_there_when_only_the_answer_was_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(400_000)
    lose_an_answer(store, monkeypatch)
    ref = await insistently(lambda: store.blobs.put(data))
    assert await store.blobs.put(data) == ref
    assert await store.blobs.get(ref) == data
    assert len(await store.chunks()) == 1


async def test_a_blob_whose_content_is_gone_is_missing_until_it_is_put_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    data = os.urandom(400_000)
    ref = await store.blobs.put(data)
    await store.lose_content()
    with pytest.raises(BlobMissing):
        await store.blobs.get(ref)
    assert await store.blobs.put(data) == ref
    assert await store.blobs.get(ref) == data


async def test_an_entry_whose_content_is_gone_does_not_hold_up_its_shard(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    ref = await store.blobs.put(os.urandom(400_000))
    await store.lose_content()
    told: asyncio.Queue[Read] = asyncio.Queue()

    async def nothing(_seq: int, _lifecycle: Lifecycle) -> None:
        pass

    tail = Tail(store.nc, store.topology, store.blobs, "gateway", told.put, nothing)
    tail.start()
    lost = Spilled(id="t:entry:1", tree="t", run="t", at=1.0, ref=ref, size=400_000)
    for run, data in (("t", encode(lost)), ("t_1_0", b"{}")):
        await jetstream.append(store.nc, store.topology.journal("t", run), data)
    first, second = [await asyncio.wait_for(told.get(), patience()) for _ in range(2)]
    await tail.stop()
    assert (first.stored, first.refs) == (None, {ref}), "left out, and still known to be named"
    assert second.seq > first.seq


async def test_a_writer_so_slow_that_its_chunks_are_swept_up_stores_them_anew(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_young(monkeypatch)
    monkeypatch.setattr("cadre.adapters.nats.blobs._TOUCH_AFTER_SECONDS", 0.0)
    data = os.urandom(400_000)
    before_the_entry(store, monkeypatch, other.blobs.sweep)
    assert await store.blobs.get(await store.blobs.put(data)) == data


# --- nothing else stays


async def test_of_many_who_put_one_blob_at_once_one_stores_it(store: Store, other: Store) -> None:
    data = os.urandom(1_000_000)
    refs = await asyncio.gather(*(one.blobs.put(data) for one in (store, other, store, other)))
    assert list((await store.chunks()).values()) == [8]
    assert await other.blobs.get(refs[0]) == data
    assert await store.blobs.remove(refs[0])
    state = (await jetstream.api(store.nc, f"STREAM.INFO.OBJ_{store.bucket}"))["state"]
    assert state["messages"] == 0


async def test_of_two_who_save_one_image_at_once_the_last_has_it(store: Store, other: Store) -> None:
    await store.images.save("list", b"the first")
    for number in range(5):
        both = [os.urandom(300_000), bytes([number]) * 300_000]
        await asyncio.gather(store.images.save("list", both[0]), other.images.save("list", both[1]))
        assert await store.images.load("list") in both
        assert len(await store.chunks()) == 1
    await other.images.save("list", b"")
    assert await store.images.load("list") == b""
    assert await store.chunks() == {}


async def test_an_image_is_saved_when_only_the_answer_was_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.images.save("list", b"x" * 300_000)
    lose_an_answer(store, monkeypatch)
    await store.images.save("list", b"y" * 300_000)
    assert await store.images.load("list") == b"y" * 300_000
    assert len(await store.chunks()) == 1


async def test_what_did_not_fit_is_taken_back(store: Store) -> None:
    stream = f"OBJ_{store.bucket}"
    config = (await jetstream.api(store.nc, f"STREAM.INFO.{stream}"))["config"]
    assert "error" not in await jetstream.api(store.nc, f"STREAM.UPDATE.{stream}", config | {"max_bytes": 1_000_000})
    with pytest.raises(BusFull):
        await store.blobs.put(os.urandom(2_000_000))
    assert await store.chunks() == {}


async def test_what_a_cancelled_writer_leaves_is_swept_up_when_it_is_not_young(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {await store.blobs.put(data): data for data in (b"", b"small", os.urandom(300_000))}
    await store.images.save("list", b"y" * 300_000)
    whole = await store.chunks()

    about_to: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def hang() -> None:
        about_to.set_result(None)
        await asyncio.Event().wait()

    before_the_entry(store, monkeypatch, hang)
    putting = asyncio.create_task(store.blobs.put(os.urandom(400_000)))
    await asyncio.wait_for(about_to, patience())
    putting.cancel()
    await asyncio.wait({putting})
    assert len(await store.chunks()) == len(whole) + 1
    assert await other.blobs.sweep() == 0, "somebody may be at it"
    never_young(monkeypatch)
    assert await other.blobs.sweep() == 1
    assert await store.chunks() == whole
    assert await store.images.load("list") == b"y" * 300_000
    for ref, data in kept.items():
        assert await store.blobs.get(ref) == data


DYING = """
import asyncio, os, signal, sys
from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams.provision import provision
from cadre.settings import Settings

async def main():
    settings = Settings(nats_url=sys.argv[1], prefix=sys.argv[2], shards=2)
    nc = await connect(settings, "dying")
    topology = await provision(nc, settings)
    publish = nc.publish
    async def deadly(subject, *more, **named):
        if ".M." in subject:
            os.kill(os.getpid(), signal.SIGKILL)
        await publish(subject, *more, **named)
    nc.publish = deadly
    await NatsBlobs(nc, topology).put(b"z" * 400_000)

asyncio.run(main())
"""


async def test_what_a_killed_writer_leaves_is_swept_up(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", DYING, settings.nats_url, settings.prefix]
    killed = await asyncio.to_thread(subprocess.run, command, timeout=patience())
    assert killed.returncode == -signal.SIGKILL
    assert list((await store.chunks()).values()) == [4]
    never_young(monkeypatch)
    assert await store.blobs.sweep() == 1
    assert await store.chunks() == {}


# --- in the form that every client knows


async def test_other_clients_read_what_is_written_here_and_the_other_way_round(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(300_000)
    ref = await store.blobs.put(data)
    theirs = await store.nc.jetstream().object_store(store.bucket)
    found = await theirs.get(ref.removeprefix("blob:"))
    assert (found.data, found.info.size, found.info.chunks) == (data, 300_000, 3)
    await theirs.put("list", data)
    await theirs.put(hashlib.sha256(data[1:]).hexdigest(), data[1:])
    never_young(monkeypatch)
    assert await store.blobs.sweep() == 0
    assert await store.images.load("list") == data
    assert await store.blobs.get(await store.blobs.put(data[1:])) == data[1:]
    assert len(await store.chunks()) == 3


# --- much at once


@pytest.fixture
def narrow_server(tmp_path: Path) -> Iterator[NatsServer]:
    """It cuts the connection when more than this is on its way to a client."""
    with NatsServer(tmp_path, sync="2m", more="max_pending: 8MB\n") as server:
        yield server


async def test_many_large_reads_at_once_are_not_too_much_for_the_server(narrow_server: NatsServer) -> None:
    settings = Settings(nats_url=narrow_server.url, shards=1)
    nc = await connect(settings, "test")
    blobs = NatsBlobs(nc, await provision(nc, settings))
    data = {await blobs.put(one): one for one in (os.urandom(4_000_000) for _ in range(12))}
    found = await asyncio.gather(*(blobs.get(ref) for ref in data))
    assert found == list(data.values())
    assert nc.stats["reconnects"] == 0
    await nc.close()
