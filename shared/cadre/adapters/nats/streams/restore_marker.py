"""The mark that a restore leaves at the server while it goes on: what was there may be missing in part.

It is an empty stream; its metadata say how to go back. A restore that was killed leaves it, and then no service starts.
"""

import os
import shlex
import socket
from pathlib import Path
from typing import Any, NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.errors import SetupError
from cadre.settings import Settings

_FOLDER, _HOST, _SAVED = "cadre.folder", "cadre.host", "cadre.saved"


class RestoreMark(NamedTuple):
    """The note that a restore leaves of itself."""

    folder: Path
    """The backup that brings back what was there; where there was nothing, the one that is restored."""
    is_saved: bool
    """True if the folder holds what was there."""
    host: str
    """The machine on which the folder lies."""

    @property
    def command(self) -> str:
        """The command that goes back."""
        return f"cadre restore {shlex.quote(os.fspath(self.folder))} --replace"


def new_mark(folder: Path, *, is_saved: bool) -> RestoreMark:
    """Return the mark of a restore on this machine."""
    return RestoreMark(folder.absolute(), is_saved, socket.gethostname())


async def read_mark(nc: Client, prefix: str) -> RestoreMark | None:
    """Return the mark of a restore that goes on, or did not end; None without such a restore. Raise BusUnavailable."""
    found = await jetstream.stream_info(nc, _name(prefix))
    if found is None:
        return None
    about = found["config"].get("metadata") or {}
    return RestoreMark(Path(about.get(_FOLDER, "")), about.get(_SAVED) == "1", about.get(_HOST, ""))


async def check_no_restore(nc: Client, prefix: str) -> None:
    """Raises SetupError while a restore goes on, or where one did not end; BusUnavailable."""
    if (mark := await read_mark(nc, prefix)) is not None:
        raise SetupError(
            f"a restore goes on, or did not end: if none runs, go back by `{mark.command}` on {mark.host}"
        )


async def write_mark(nc: Client, settings: Settings, mark: RestoreMark) -> None:
    """Mark the server, in place of an earlier mark. Raises BusUnavailable."""
    await remove_mark(nc, settings.prefix)
    name = _name(settings.prefix)
    config: dict[str, Any] = {
        "name": name,
        "subjects": [f"{settings.prefix}.restore"],
        "storage": "file",
        "retention": "limits",
        "num_replicas": settings.replicas,
        "max_msgs": 1,
        "metadata": {
            _FOLDER: os.fspath(mark.folder),
            _HOST: mark.host,
            _SAVED: "1" if mark.is_saved else "0",
        },
    }
    await jetstream.ask(nc, "marking the server", f"STREAM.CREATE.{name}", config)


async def remove_mark(nc: Client, prefix: str) -> None:
    """Remove the mark, if there is one. Raises BusUnavailable."""
    name = _name(prefix)
    if await jetstream.stream_info(nc, name) is not None:
        await jetstream.ask(nc, "removing the mark of the restore", f"STREAM.DELETE.{name}")


def _name(prefix: str) -> str:
    return f"{prefix.upper()}-RESTORE"
