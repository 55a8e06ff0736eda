"""The disk as a power cut would leave it: a copy of the block device, taken while the server acknowledges writes.

The server's folder lies on an ext4 file system in an image. What the image holds at an instant is what the kernel
has sent to the device by then; the copy is mounted, which replays ext4's journal, and the server is started on it.
It mounts file systems, so it runs only where it is asked for: as root, with CADRE_TEST_POWER_CUT=1.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_cluster import SIZE, NatsCluster
from harness.nats_server import NatsServer

pytestmark = pytest.mark.skipif(
    os.environ.get("CADRE_TEST_POWER_CUT") != "1" or os.geteuid() != 0,
    reason="mounts file systems: runs as root with CADRE_TEST_POWER_CUT=1",
)

WRITERS = 16
SECONDS = 4.0
IMAGE_MB = 256


class Disk:
    """An image that is mounted at `folder`."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image = image
        self.folder = folder
        self._copy = image.with_suffix(".cut")
        self._mounted = False

    def make(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(IMAGE_MB * 1024 * 1024)
        _command("mkfs.ext4", "-q", "-F", self.image)
        self.folder.mkdir()
        self._mount(self.image)

    def photograph(self) -> None:
        """Keeps what is on the device now."""
        _command("cp", "--sparse=always", self.image, self._copy)

    def cut(self) -> None:
        """Goes on with what was photographed."""
        self.unmount()
        self._mount(self._copy)

    def unmount(self) -> None:
        if self._mounted:
            _command("umount", self.folder)
            self._mounted = False

    def _mount(self, image: Path) -> None:
        _command("mount", "-o", "loop", image, self.folder)
        self._mounted = True


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", tmp_path / "mounted")
    disk.make()
    yield disk
    disk.unmount()


@pytest.mark.parametrize("sync", ["always", "1s", "120s"])
async def test_a_power_cut(disk: Disk, sync: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = NatsServer(disk.folder, sync=sync)
    _command("sync", "-f", disk.folder)  # its configuration is there; all else is its own matter
    server.start()
    try:
        settings = Settings(nats_url=server.url, shards=1)
        nc = await connect(settings, "test")
        topology = await provision(nc, settings)
        if sync != "always":
            # Streams that have been there for long; of a new one not even its name would be left.
            _command("sync", "-f", disk.folder)
        acked = await _write(nc, topology)
        # From here on nothing is acknowledged; the writers learn of nothing that the copy could miss.
        os.kill(server.pid, signal.SIGSTOP)
        await asyncio.to_thread(disk.photograph)
        server.kill()
        await asyncio.to_thread(disk.cut)
        server.start()
        lost = len(set(acked) - await _kept(nc, topology))
        with capsys.disabled():
            print(f"sync_interval {sync}: {lost} of {len(acked)} acknowledged appends lost")
        await nc.close()
    finally:
        server.kill()
    if sync == "always":
        assert lost == 0
    else:
        # Were nothing lost here, the experiment could not tell.
        assert lost > 0


@pytest.mark.parametrize(("machines", "sync"), [(1, "100ms"), (1, "120s"), (SIZE, "always")])
async def test_a_power_cut_of_three_servers(
    disk: Disk, tmp_path: Path, machines: int, sync: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One machine without power loses nothing at any interval: the others have it. All at once need `always`."""
    (tmp_path / "cluster").mkdir()
    cluster = NatsCluster(tmp_path / "cluster", sync=sync)
    off = list(cluster.servers.values())[:machines]
    for number, server in enumerate(off):
        (disk.folder / str(number)).mkdir()
        server.store.symlink_to(disk.folder / str(number))
    _command("sync", "-f", disk.folder)
    try:
        cluster.start()
        settings = Settings(nats_url=cluster.url, shards=1, replicas=SIZE)
        nc = await connect(settings, "test")
        topology = await provision(nc, settings)
        if sync != "always":
            _command("sync", "-f", disk.folder)
        acked = await _write(nc, topology)
        for server in off:
            os.kill(server.pid, signal.SIGSTOP)
        await asyncio.to_thread(disk.photograph)
        for server in off:
            server.kill()
        await asyncio.to_thread(disk.cut)
        for server in off:
            server.start()
        await asyncio.to_thread(cluster.wait_healthy)
        lost = len(set(acked) - await _kept(nc, topology))
        with capsys.disabled():
            print(f"sync_interval {sync}, {machines} of {SIZE}: {lost} of {len(acked)} acknowledged appends lost")
        await nc.close()
    finally:
        for server in cluster.servers.values():
            server.kill()
    assert lost == 0


async def _write(nc: NatsClient, topology: Topology) -> list[int]:
    acked: list[int] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS

    async def write(writer: int) -> None:
        subject = topology.effect(f"w{writer}", f"w{writer}", "boss", "pay")
        while loop.time() < end:
            acked.append(await jetstream.append(nc, subject, b"x" * 600))

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    return acked


async def _kept(nc: NatsClient, topology: Topology) -> set[int]:
    """Sequences of what the stream holds."""
    kept: set[int] = set()
    after = 0
    while True:
        query = {"seq": after + 1, "batch": 1000, "next_by_subj": ">"}
        page = await retry(partial(jetstream.batch, nc, topology.stream(0), query), pauses=EVERY_SECOND)
        if not page:
            return kept
        after = page[-1].seq
        kept.update(held.seq for held in page)


def _command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
