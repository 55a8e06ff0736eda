"""A deployment in a folder, and back: all its streams and buckets, and how far its queues had come.

A shard's stream has the whole of its trees: journals, records, calls, effects. So each tree is what it was at one
moment, whatever goes on meanwhile. How far a queue had come is noted before: what was done since is delivered again,
and known by its id. Objects are saved last, so that what a journal names is there.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.queues.consumers import create_consumer
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import existing, stream_names
from cadre.adapters.nats.streams.snapshot import SavedStream, check_saved, restore_stream, save_stream
from cadre.errors import SetupError
from cadre.protocol.topology import Topology
from cadre.settings import Settings

MANIFEST = "cadre-backup.json"
_FORM = 1


class SavedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer, and the last message up to which it has handled everything."""

    stream: str
    config: dict[str, Any]
    done: int


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup has. It is written last: a folder without it is no backup."""

    form: int = _FORM
    prefix: str
    shards: int
    began_at: float
    """Unix seconds by this machine's clock; each stream is of a moment after that."""
    streams: list[SavedStream]
    queues: list[SavedQueue]


def read_backup(folder: Path) -> Backup:
    """Raises SetupError for a folder that holds none, or not all that was written."""
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Backup)
    except FileNotFoundError as error:
        raise SetupError(f"{folder} holds no backup: there is no {MANIFEST} in it") from error
    except msgspec.MsgspecError as error:
        raise SetupError(f"{folder / MANIFEST} cannot be read: {error}") from error
    if found.form != _FORM:
        raise SetupError(f"{folder} is a backup of form {found.form}, and this version reads form {_FORM}")
    for one in found.streams:
        check_saved(one, folder / one.name)
    return found


async def back_up(
    nc: Client,
    settings: Settings,
    folder: Path,
    at: float,
    told: Callable[[SavedStream], None],
    more: Callable[[], Awaitable[None]] | None = None,
) -> Backup:
    """Writes the deployment to a folder, which is made; `more` is done before it is a backup, and may write there.

    Raises SetupError, BusUnavailable, and what `more` does.
    """
    topology = await existing(nc, settings)
    if topology is None:
        raise SetupError(f"there is nothing to save: no streams of the prefix {settings.prefix!r}")
    _make(folder)
    names = stream_names(topology)
    queues = [queue for name in names for queue in await _queues(nc, name)]
    streams: list[SavedStream] = []
    for name in names:
        streams.append(await save_stream(nc, name, folder / name))
        told(streams[-1])
    if more is not None:
        await more()
    made = Backup(prefix=topology.prefix, shards=topology.shards, began_at=at, streams=streams, queues=queues)
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)))
    return made


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise SetupError(
            f"{folder} cannot be made: {error.strerror}: name one that is not there yet"
        ) from error


async def _queues(nc: Client, stream: str) -> list[SavedQueue]:
    found: list[SavedQueue] = []
    total = 1
    seen = 0
    while seen < total:
        page = await jetstream.ask(
            nc, f"listing consumers of {stream}", f"CONSUMER.LIST.{stream}", {"offset": seen}
        )
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


async def restore(
    nc: Client,
    settings: Settings,
    folder: Path,
    saved: Backup,
    *,
    replace: bool,
    told: Callable[[SavedStream], None],
) -> None:
    """Makes the deployment of a backup where there is none; with `replace` it takes the place of the one there.

    Raises SetupError, before anything is changed where it can be known then, and BusUnavailable.
    """
    if saved.prefix != settings.prefix:
        raise SetupError(
            f"the backup is of the prefix {saved.prefix!r}, and CADRE_PREFIX is {settings.prefix!r}: streams"
            " keep their names"
        )
    there = [
        name
        for name in stream_names(Topology(saved.shards, saved.prefix))
        if await jetstream.stream_info(nc, name) is not None
    ]
    if there and not replace:
        raise SetupError(
            f"there are streams already ({', '.join(there)}): stop all services, and take --replace to remove them"
        )
    for name in there:
        await jetstream.ask(nc, f"removing stream {name}", f"STREAM.DELETE.{name}")
    for one in saved.streams:
        await restore_stream(nc, one.name, folder / one.name, settings.replicas)
        told(one)
    for queue in saved.queues:
        begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": queue.done + 1}
        config = {
            key: value for key, value in queue.config.items() if key not in ("metadata", "num_replicas")
        }
        await create_consumer(nc, queue.stream, config["durable_name"], config | begin)
