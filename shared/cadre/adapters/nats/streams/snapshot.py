"""Streams as files, and back: JetStream's snapshots, in the form that `nats stream backup` writes and reads.

A folder for each stream: `backup.json` has its configuration and state, `stream.tar.s2` its messages. Sequences are
those of the stream. Consumers are left out: what was delivered is delivered again, and known by its id.
"""

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import nats.errors
from nats.aio.client import Client

from cadre.adapters.nats.connection.requests import request
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable

ABOUT, MESSAGES = "backup.json", "stream.tar.s2"
_CHUNK_BYTES = 128 * 1024
_CHUNK_SECONDS = 60.0
"""How long the server may take for a piece: it checks all messages first."""


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream in a backup."""

    name: str
    messages: int
    size: int
    """Bytes of its file."""
    created: str
    """The time at which it was made: another time means another stream of the same name."""


async def save_stream(nc: Client, stream: str, folder: Path) -> SavedStream:
    """Writes a stream, as it is at one moment, to a new folder. Raises BusUnavailable, OSError."""
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
    """Makes a stream that is not there, from its folder. Raises BusUnavailable, OSError."""
    about, doing = json.loads((folder / ABOUT).read_bytes()), f"restoring stream {stream}"
    config = about["config"] | {"num_replicas": replicas}
    answer = await jetstream.ask(
        nc, doing, f"STREAM.RESTORE.{stream}", {"config": config, "state": about["state"]}
    )
    with (folder / MESSAGES).open("rb") as file:
        found = await _send(nc, doing, answer["deliver_subject"], file)
    # What had a time to live may have gone meanwhile; the sequences stay.
    if found["state"]["last_seq"] < about["state"]["last_seq"]:
        raise BusUnavailable(
            doing, f"it ends at {found['state']['last_seq']}, not {about['state']['last_seq']}"
        )


async def _send(nc: Client, doing: str, subject: str, file: BinaryIO) -> dict[str, Any]:
    """Sends the file in pieces, each of which is answered; the answer to the end tells of the stream."""
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
