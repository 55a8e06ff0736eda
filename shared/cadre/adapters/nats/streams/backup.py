"""A deployment in a folder: all its streams and buckets as JetStream's snapshots, in the form that `nats stream
backup` writes and reads, how far its queues had come, and a digest of each file."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client

from cadre.adapters.nats.connection.requests import request
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import check_no_restore, existing, stream_names
from cadre.delivery.codec import decode
from cadre.errors import BusUnavailable, NotPermitted, SetupError, UnreadableMessage
from cadre.protocol.access import AuditEntry
from cadre.protocol.topology import Subject, Topology
from cadre.settings import Settings

ABOUT, MESSAGES = "backup.json", "stream.tar.s2"
_CHUNK_BYTES = 128 * 1024
_CHUNK_SECONDS = 60.0
"""The timeout for a piece: the server checks all messages first."""


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream in a backup."""

    name: str
    messages: int
    size: int
    """Bytes of its file."""
    created: str
    """The time at which it was made: another time means another stream of the same name."""


async def save_stream(nc: Client, stream: str, folder: Path) -> SavedStream:
    """Write a stream, as it is at one moment, to a new folder. Raises BusUnavailable, OSError."""
    created: str = (await jetstream.ask(nc, f"saving stream {stream}", f"STREAM.INFO.{stream}"))["created"]
    inbox, doing = nc.new_inbox(), f"saving stream {stream}"
    subscription = await nc.subscribe(inbox)
    try:
        asked = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": _CHUNK_BYTES, "jsck": True}
        answer = await jetstream.ask(nc, doing, f"STREAM.SNAPSHOT.{stream}", asked)
        config, state = answer["config"], answer["state"]
        os.mkdir(folder)
        (folder / ABOUT).write_text(json.dumps({"config": config, "state": state}, indent=2))
        size = 0
        with (folder / MESSAGES).open("wb") as file:
            while data := await _next_chunk(subscription, nc, doing):
                file.write(data)
                size += len(data)
    finally:
        if not nc.is_closed:
            await subscription.unsubscribe()
    return SavedStream(name=stream, messages=state["messages"], size=size, created=created)


async def _next_chunk(subscription: Any, nc: Client, doing: str) -> bytes:
    """b"" at the end."""
    try:
        message = await subscription.next_msg(timeout=_CHUNK_SECONDS)
        if message.reply:
            # The server sends no more than a window without that.
            await nc.publish(message.reply)
    except nats.errors.Error as error:
        raise BusUnavailable(doing, error or f"nothing came for {_CHUNK_SECONDS:g} s") from error
    status = (message.headers or {}).get("Status")
    if status and not status.startswith("2"):
        raise BusUnavailable(doing, (message.headers or {}).get("Description", status))
    data: bytes = message.data
    return data


async def restore_stream(nc: Client, stream: str, folder: Path, replicas: int) -> None:
    """Make a stream that is not there, from its folder. Raises BusUnavailable, OSError."""
    about, doing = json.loads((folder / ABOUT).read_bytes()), f"restoring stream {stream}"
    config = about["config"] | {"num_replicas": replicas}
    answer = await jetstream.ask(nc, doing, f"STREAM.RESTORE.{stream}", {"config": config, "state": about["state"]})
    with (folder / MESSAGES).open("rb") as file:
        found = await _send(nc, doing, answer["deliver_subject"], file)
    # What had a time to live may have gone meanwhile; the sequences stay.
    if found["state"]["last_seq"] < about["state"]["last_seq"]:
        raise BusUnavailable(doing, f"it ends at {found['state']['last_seq']}, not {about['state']['last_seq']}")


async def _send(nc: Client, doing: str, subject: str, file: BinaryIO) -> dict[str, Any]:
    """Send the file in pieces, each of which is answered; the last answer describes the stream."""
    while True:
        chunk = file.read(_CHUNK_BYTES)
        try:
            answer = await request(nc, subject, chunk, None, _CHUNK_SECONDS)
        except nats.errors.Error as error:
            raise BusUnavailable(doing, str(error) or "no answer") from error
        told: dict[str, Any] = json.loads(answer.data) if answer.data else {}
        if refused := told.get("error"):
            raise BusUnavailable(doing, refused.get("description"))
        if not chunk:
            return told


MANIFEST = "cadre-backup.json"
DIGESTS = "SHA256SUMS"
"""The file of all digests, in the form that `sha256sum -c` reads. It is written last: without it a folder is no
backup."""

API_KEYS = "key"
"""The kind of definition that API keys are."""

_FORM = 2
_DIGEST = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


class SavedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer, and the last message up to which it has handled everything."""

    stream: str
    config: dict[str, Any]
    done: int


class Deployment(NamedTuple):
    """Streams of a deployment."""

    topology: Topology
    names: Sequence[str]


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup."""

    form: int = _FORM
    prefix: str
    account: str = ""
    """The NATS account that it is of; "" where the server does not say."""
    shards: int
    began_at: float
    """Unix seconds by this machine's clock; each stream is of a moment after that."""
    streams: list[SavedStream]
    queues: list[SavedQueue]
    keys: list[str]
    """Ids of the API keys that it holds."""
    revoked: list[str]
    """Ids of the API keys that its audit trail says were revoked."""

    def created(self, stream: str) -> str:
        """Return when the stream was made; "" for one that it does not hold."""
        return next((one.created for one in self.streams if one.name == stream), "")


def read_backup(folder: Path) -> Backup:
    """Read what the folder holds, after all of its files have been compared with their digests. Raises SetupError for
    a folder that holds no backup, or not exactly what was written."""
    check_digests(folder)
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Backup)
    except (OSError, msgspec.MsgspecError) as error:
        raise SetupError(f"{folder / MANIFEST} cannot be read: {error}") from error
    if found.form != _FORM:
        raise SetupError(f"{folder} is a backup of form {found.form}, and this version reads form {_FORM}")
    return found


def check_digests(folder: Path) -> None:
    """Compare every file of a backup with its digest. Raises SetupError that names what differs."""
    try:
        text = (folder / DIGESTS).read_text("ascii")
        found = _digests(folder)
    except FileNotFoundError as error:
        text = f"{folder} holds no whole backup: {Path(error.filename or DIGESTS).name} is not in it"
        raise SetupError(text) from error
    except UnicodeDecodeError as error:
        raise SetupError(f"{folder / DIGESTS} is not what was written: make or fetch the backup again") from error
    except OSError as error:
        raise SetupError(f"the backup {folder} cannot be read: {error}") from error
    lines = [_DIGEST.fullmatch(line) for line in text.removesuffix("\n").split("\n")]
    known = {line[2]: line[1] for line in lines if line is not None}
    # A mark that was changed and still reads as a line would be a digest in capitals, or a line twice.
    whole = None not in lines and text == _text_of(known)
    lost, more = sorted(known.keys() - found.keys()), sorted(found.keys() - known.keys())
    other = sorted(name for name in known.keys() & found.keys() if known[name] != found[name])
    wrong = [
        *([] if whole else [f"{DIGESTS} is not what was written"]),
        *(f"{name} is missing" for name in lost),
        *(f"{name} does not belong to it" for name in more),
        *(f"{name} differs from what was written" for name in other),
    ]
    if wrong:
        raise SetupError(
            f"the backup {folder} is not what was written, and nothing was changed: {'; '.join(wrong[:5])}"
        )


def _digests(folder: Path, *, sync: bool = False) -> dict[str, str]:
    """Return the SHA-256 of each file below the folder, by its path there; with `sync` each is on the disk then.
    Raises OSError."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_dir() and not file.is_symlink():
            continue
        name = file.relative_to(folder).as_posix()
        if name == DIGESTS:
            continue
        with file.open("rb") as opened:
            found[name] = hashlib.file_digest(opened, "sha256").hexdigest()
            if sync:
                os.fsync(opened.fileno())
    return found


def _text_of(digests: dict[str, str]) -> str:
    """Return the digests in the form that `sha256sum -c` reads."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


async def back_up(
    nc: Client,
    settings: Settings,
    folder: Path,
    at: float,
    told: Callable[[SavedStream], None],
    more: Callable[[], Awaitable[None]] | None = None,
) -> Backup:
    """Write the deployment to a folder, which is made; `more` is done before it is a backup, and may write there.

    Raises SetupError, BusUnavailable, and what `more` does.
    """
    await check_no_restore(nc, settings.prefix)
    topology = await existing(nc, settings)
    if topology is None:
        raise SetupError(f"there is nothing to save: no streams of the prefix {settings.prefix!r}")

    async def last() -> None:
        if more is not None:
            await more()
        now = await existing(nc, settings)
        if now is None or now.layout.generations != topology.layout.generations:
            raise SetupError(
                f"{folder} is no backup, since runs have begun in new shards meanwhile: remove it, and save again"
            )

    return await save_streams(nc, Deployment(topology, stream_names(topology)), folder, at, told, last)


async def save_streams(
    nc: Client,
    deployment: Deployment,
    folder: Path,
    at: float,
    told: Callable[[SavedStream], None],
    more: Callable[[], Awaitable[None]] | None = None,
) -> Backup:
    """Do as `back_up` with some of a deployment's streams. Raises SetupError, BusUnavailable, and what `more` does."""
    topology, names = deployment
    _make(folder)
    try:
        queues = [queue for name in names for queue in await _queues(nc, name)]
        keys = await _keys(nc, topology) if topology.automation_stream in names else []
        revoked = await _revoked(nc, topology) if topology.audit_stream in names else []
        streams: list[SavedStream] = []
        for name in names:
            streams.append(await save_stream(nc, name, folder / name))
            told(streams[-1])
        if more is not None:
            await more()
        made = Backup(
            prefix=topology.prefix,
            account=await account_name(nc),
            shards=topology.shards,
            began_at=at,
            streams=streams,
            queues=queues,
            keys=keys,
            revoked=revoked,
        )
        (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)))
        _write_digests(folder)
    except OSError as error:
        raise SetupError(
            f"{folder} is no backup, since it cannot be written to the end ({error.strerror or error}): make room,"
            " remove it, and save again"
        ) from error
    return made


def _write_digests(folder: Path) -> None:
    """Write the digests of all that is there, in one move: with them the folder is a backup. Raises OSError."""
    fresh = folder.with_name(f".{folder.name}.{DIGESTS}")
    with fresh.open("w", encoding="ascii") as opened:
        opened.write(_text_of(_digests(folder, sync=True)))
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(folder / DIGESTS)
    for place in (folder, folder.parent):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


async def account_name(nc: Client) -> str:
    """Return the name of the connection's account; "" where the server or its permissions do not let it be asked."""
    try:
        answer = await request(nc, "$SYS.REQ.USER.INFO", b"", None, jetstream.ANSWER_SECONDS)
        return str(msgspec.json.decode(answer.data)["data"]["account"])
    except (nats.errors.Error, NotPermitted, msgspec.DecodeError, KeyError, TypeError):
        return ""


async def _keys(nc: Client, topology: Topology) -> list[str]:
    """Return the ids of the API keys that the deployment has."""
    found = await jetstream.subjects(nc, topology.automation_stream, topology.definitions(API_KEYS))
    return sorted(subject.rpartition(".")[2] for subject in found)


async def _revoked(nc: Client, topology: Topology) -> list[str]:
    """Return the ids of the API keys that the audit trail says were revoked."""
    subject = topology.subject(Subject.AUDIT, action="key-revoke")
    found = set()
    async for held in jetstream.messages(nc, topology.audit_stream, subject):
        with contextlib.suppress(UnreadableMessage):
            entry: AuditEntry = decode(held.data, AuditEntry)
            if entry.status < 400:
                found.add(entry.target)
    return sorted(found)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise SetupError(f"{folder} cannot be made: {error.strerror}: name one that is not there yet") from error


async def _queues(nc: Client, stream: str) -> list[SavedQueue]:
    found: list[SavedQueue] = []
    total = 1
    seen = 0
    while seen < total:
        page = await jetstream.ask(nc, f"listing consumers of {stream}", f"CONSUMER.LIST.{stream}", {"offset": seen})
        consumers, total = page["consumers"] or [], page["total"]
        seen += len(consumers)
        found += [
            SavedQueue(stream=stream, config=one["config"], done=one["ack_floor"]["stream_seq"])
            for one in consumers
            if one["config"].get("durable_name")
        ]
        if not consumers:
            break
    return found
