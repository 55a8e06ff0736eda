"""`cadre restore`: no file of a backup may differ, and nothing that is there is lost by a restore that fails."""

# ruff: noqa: ASYNC240

import contextlib
import errno
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cadre.adapters.nats.audit import NatsAudit
from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.queues.consumers import ensure_consumer
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.backup import DIGESTS, MANIFEST, read_backup
from cadre.adapters.nats.streams.provision import provision, read_mark, stream_names
from cadre.errors import SetupError
from cadre.protocol.access import ApiKey, AuditEntry
from cadre.protocol.topology import Topology
from cadre.settings import Settings, child_environment
from harness.command import Commands, only_line
from harness.full_server import FullServer
from harness.nats_proxy import NatsProxy
from harness.nats_server import NatsServer
from harness.patience import patience

SHARDS = 2
TOPOLOGY = Topology(SHARDS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path) as server:
        yield server


def settings_of(url: str) -> Settings:
    return Settings(nats_url=url, shards=SHARDS)


def cadre(url: str, folder: Path) -> Commands:
    return Commands(folder, child_environment(CADRE_NATS_URL=url, CADRE_SHARDS=str(SHARDS)))


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[NatsClient]:
    nc = await connect(settings_of(url), "test")
    try:
        yield nc
    finally:
        await nc.close()


def keys_of(nc: NatsClient) -> NatsDefinitions[ApiKey]:
    return NatsDefinitions(nc, TOPOLOGY, "key", ApiKey)


def key(identity: str) -> ApiKey:
    return ApiKey(id=identity, name=identity, digest="0" * 64, roles=["viewer"], made_at=1.0)


async def deployed(url: str, keys: tuple[str, ...] = ("a1", "b2"), size: int = 3_000) -> None:
    """Makes a deployment with something in all that a backup has to hold."""
    async with connected(url) as nc:
        await provision(nc, settings_of(url))
        for shard in range(SHARDS):
            await ensure_consumer(nc, TOPOLOGY.stream(shard), "agent-kid", TOPOLOGY.inbox_filter(shard, "kid"))
        for _ in range(8):
            tree = uuid4().hex
            await jetstream.append(nc, TOPOLOGY.journal(tree, tree), os.urandom(size))
        for one in keys:
            _, fence = await keys_of(nc).read(one)
            await keys_of(nc).write(one, key(one), fence)
        await NatsBlobs(nc, TOPOLOGY).put(os.urandom(size))


async def state(url: str) -> dict[str, Any]:
    """Return the state of the deployment: messages, sequences and consumers of each stream, and the API keys."""
    found: dict[str, Any] = {}
    async with connected(url) as nc:
        for name in stream_names(TOPOLOGY):
            info = await jetstream.stream_info(nc, name)
            if info is not None:
                queues = [one["name"] for one in await jetstream.consumers(nc, name)]
                found[name] = info["state"]["messages"], info["state"]["last_seq"], sorted(queues)
        if TOPOLOGY.automation_stream in found:
            found["keys"] = [one.id for one in await keys_of(nc).all() if isinstance(one, ApiKey)]
        assert await read_mark(nc, "cadre") is None, "no mark is left"
    return found


@pytest.fixture
async def saved(server: NatsServer, tmp_path: Path) -> Path:
    """A backup of the server's deployment, with a file of memories."""
    await deployed(server.url)
    folder = tmp_path / "saved"
    done = cadre(server.url, tmp_path)("backup", folder)
    assert done.returncode == 0, done.stderr
    return folder


async def test_a_flipped_bit_in_any_file_is_found(saved: Path) -> None:
    read_backup(saved)
    chance = random.Random(35)
    files = [file for file in saved.rglob("*") if file.is_file()]
    assert {MANIFEST, DIGESTS, "backup.json", "stream.tar.s2"} == {file.name for file in files}
    for file in files:
        data = file.read_bytes()
        bits = range(8 * len(data))
        every = bits if file.name == DIGESTS else chance.sample(bits, min(len(bits), 60))
        for bit in every:
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            with pytest.raises(SetupError):
                read_backup(saved)
        file.write_bytes(data)
    read_backup(saved)


def truncated(folder: Path) -> None:
    file = folder / "CADRE-1" / "stream.tar.s2"
    file.write_bytes(file.read_bytes()[:-100])


def flipped_description(folder: Path) -> None:
    file = folder / "CADRE-0" / "backup.json"
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit in a description": flipped_description,
    "a missing file": lambda folder: (folder / "CADRE-1" / "backup.json").unlink(),
    "a missing folder": lambda folder: shutil.rmtree(folder / "CADRE-1"),
    "a missing manifest": lambda folder: (folder / MANIFEST).unlink(),
    "missing digests": lambda folder: (folder / DIGESTS).unlink(),
    "an extra file": lambda folder: (folder / "CADRE-1" / "notes").write_text("mine"),
    "a truncated file": truncated,
    "an empty file": lambda folder: (folder / "CADRE-1" / "stream.tar.s2").write_bytes(b""),
    "other memories": lambda folder: (folder / "memories.jsonl").write_text("{}\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_backup_changes_nothing(server: NatsServer, saved: Path, tmp_path: Path, damage: str) -> None:
    await deployed(server.url)
    before = await state(server.url)
    DAMAGES[damage](saved)
    only_line(cadre(server.url, tmp_path)("restore", saved, "--replace"), 2)
    assert await state(server.url) == before
    assert not list(tmp_path.glob("saved.replaced*")), "nothing was to be saved yet"


async def test_what_is_replaced_is_saved_and_can_come_back(server: NatsServer, saved: Path, tmp_path: Path) -> None:
    of_backup = await state(server.url)
    await deployed(server.url, keys=("c3",))
    before = await state(server.url)
    done = cadre(server.url, tmp_path)("restore", saved, "--replace")
    assert done.returncode == 0, done.stderr
    assert await state(server.url) == of_backup
    (place,) = tmp_path.glob("saved.replaced-*")
    assert f"cadre restore {place} --replace" in done.stderr
    assert cadre(server.url, tmp_path)("restore", place, "--replace").returncode == 0
    assert await state(server.url) == before


async def test_keys_that_were_revoked_stay_revoked(server: NatsServer, saved: Path, tmp_path: Path) -> None:
    async with connected(server.url) as nc:
        await keys_of(nc).remove("b2")
    done = cadre(server.url, tmp_path)("restore", saved, "--replace")
    assert "b2" in done.stdout
    assert (await state(server.url))["keys"] == ["a1"]


async def test_a_revocation_in_the_audit_trail_of_another_deployment_counts(
    server: NatsServer, saved: Path, tmp_path: Path
) -> None:
    """The deployment was lost, begun again, and one of the keys of before is named in its audit trail."""
    async with connected(server.url) as nc:
        for name in stream_names(TOPOLOGY):
            await jetstream.ask(nc, "removing", f"STREAM.DELETE.{name}")
    await deployed(server.url, keys=())
    async with connected(server.url) as nc:
        for status, one in ((404, "a1"), (200, "b2")):
            entry = AuditEntry(at=1.0, action="key.revoke", who="anna", target=one, status=status)
            await NatsAudit(nc, TOPOLOGY).append(entry)
    assert cadre(server.url, tmp_path)("restore", saved, "--replace").returncode == 0
    assert (await state(server.url))["keys"] == ["a1"]


async def test_an_empty_server_cannot_know_which_keys_were_revoked(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with NatsServer(tmp_path / "other") as empty:
        done = cadre(empty.url, tmp_path)("restore", saved)
        assert done.returncode == 0, done.stderr
        assert "not known" in done.stdout
        assert (await state(empty.url))["keys"] == ["a1", "b2"]


async def test_a_restore_that_fails_puts_back_what_was_there(tmp_path: Path) -> None:
    """The backup does not fit into the account that it is to be restored in."""
    for name in ("large", "small"):
        (tmp_path / name).mkdir()
    with FullServer(tmp_path / "large", 64 * 1024 * 1024) as large:
        await deployed(large.url, size=500_000)
        assert cadre(large.url, tmp_path)("backup", tmp_path / "saved").returncode == 0
    with FullServer(tmp_path / "small", 1024 * 1024) as small:
        await deployed(small.url, keys=("c3",))
        before = await state(small.url)
        line = cadre(small.url, tmp_path)("restore", tmp_path / "saved", "--replace")
        assert line.returncode == 2, line.stderr
        assert "what was there is back" in line.stderr
        assert await state(small.url) == before
        async with connected(small.url) as nc:
            for name in stream_names(TOPOLOGY):
                await jetstream.ask(nc, "removing", f"STREAM.DELETE.{name}")
        assert cadre(small.url, tmp_path)("restore", tmp_path / "saved").returncode == 2
        assert await state(small.url) == {}


@pytest.mark.parametrize("stream", ["CADRE-0", "CADRE-1", "OBJ_cadre-blobs"])
async def test_a_restore_that_was_killed_says_how_to_go_back(
    server: NatsServer, saved: Path, tmp_path: Path, stream: str
) -> None:
    await deployed(server.url, keys=("c3",))
    before = await state(server.url)
    with NatsProxy(server.port) as proxy:
        proxy.swallow(re.compile(rf"\$JS\.API\.STREAM\.RESTORE\.{stream}$"))
        restoring = cadre(proxy.url, tmp_path).start("restore", saved, "--replace")
        proxy.wait_kept(1)
        restoring.send_signal(signal.SIGKILL)
        _, told = restoring.communicate(timeout=patience())
    (place,) = tmp_path.glob("saved.replaced-*")
    command = f"cadre restore {place} --replace"
    assert command in told, "said before anything was removed"
    here = cadre(server.url, tmp_path)
    for words in (("provision",), ("backup", tmp_path / "other"), ("restore", saved)):
        assert command in only_line(here(*words), 2), "nobody makes what is missing"
    assert command in here("doctor").stdout
    again = here("restore", place, "--replace")
    assert again.returncode == 0, again.stderr
    assert await state(server.url) == before


async def test_a_restore_after_a_killed_one_keeps_what_was_there_first(
    server: NatsServer, saved: Path, tmp_path: Path
) -> None:
    of_backup = await state(server.url)
    async with connected(server.url) as nc:
        await keys_of(nc).remove("b2")
    with NatsProxy(server.port) as proxy:
        proxy.swallow(re.compile(r"\$JS\.API\.STREAM\.RESTORE\.CADRE-1$"))
        restoring = cadre(proxy.url, tmp_path).start("restore", saved, "--replace")
        proxy.wait_kept(1)
        restoring.send_signal(signal.SIGKILL)
        restoring.communicate(timeout=patience())
    done = cadre(server.url, tmp_path)("restore", saved, "--replace")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("saved.replaced-*"))) == 1, "half a deployment is not worth saving"
    found = await state(server.url)
    assert found.pop("keys") == ["a1"], "what the first one knew of revoked keys is not forgotten"
    assert {name: found[name] for name in ("CADRE-0", "CADRE-1")} == {
        name: of_backup[name] for name in ("CADRE-0", "CADRE-1")
    }


async def test_a_backup_that_was_cut_off_is_none(server: NatsServer, tmp_path: Path) -> None:
    await deployed(server.url)
    before = await state(server.url)
    with NatsProxy(server.port) as proxy:
        proxy.swallow(re.compile(r"\$JS\.API\.STREAM\.SNAPSHOT\.CADRE-1$"))
        saving = cadre(proxy.url, tmp_path).start("backup", tmp_path / "half")
        proxy.wait_kept(1)
        saving.send_signal(signal.SIGKILL)
        saving.communicate(timeout=patience())
    only_line(cadre(server.url, tmp_path)("restore", tmp_path / "half", "--replace"), 2)
    assert await state(server.url) == before


async def test_a_full_disk_ends_a_backup_and_a_restore_before_anything_is_removed(
    server: NatsServer, saved: Path, tmp_path: Path
) -> None:
    await deployed(server.url, size=200_000)
    before = await state(server.url)
    here = cadre(server.url, tmp_path)
    for words in (["backup", tmp_path / "half"], ["restore", saved, "--replace"]):
        assert os.strerror(errno.EFBIG) in only_line(on_full_disk(here, *words), 2)
        assert await state(server.url) == before
    only_line(here("restore", tmp_path / "half", "--replace"), 2)


def on_full_disk(commands: Commands, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs a command that may write no file of more than 40 KiB: as with a full disk, a write fails."""
    limited = ["sh", "-c", 'ulimit -f 80; exec "$@"', "sh", *commands._argv(words)]
    return subprocess.run(limited, env=commands._environment, capture_output=True, text=True, check=False)


_TWO = """
accounts {
  ONE { jetstream: enabled, users: [ { user: one, password: p } ] }
  TWO { jetstream: enabled, users: [ { user: two, password: p } ] }
}
"""


async def test_a_backup_of_another_account_takes_the_place_of_nothing(tmp_path: Path) -> None:
    with NatsServer(tmp_path, more=_TWO) as server:
        one, two = (server.url.replace("//", f"//{user}:p@") for user in ("one", "two"))
        await deployed(one)
        await deployed(two, keys=("c3",))
        before = await state(two)
        assert cadre(one, tmp_path)("backup", tmp_path / "saved").returncode == 0
        line = only_line(cadre(two, tmp_path)("restore", tmp_path / "saved", "--replace"), 2)
        assert "'ONE'" in line
        assert await state(two) == before
