"""`cadre backup` and `cadre restore`: a deployment's streams in a folder, and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from cadre.local.local_stack import find_nats
from cadre.protocol.nats_addresses import redacted
from cadre.settings import Settings, read_settings

if TYPE_CHECKING:
    from cadre.adapters.nats.connection.connect import NatsClient
    from cadre.adapters.nats.streams.snapshot import SavedStream

T = TypeVar("T")

_folder = click.argument("folder", type=click.Path(path_type=Path))


@click.command("backup")
@_folder
def command(folder: Path) -> None:
    """Save all streams and buckets of the deployment in FOLDER, which is made: runs, files, schedules, keys, the audit
    trail. Services may go on meanwhile. With NATS users it takes the operator's key."""
    from cadre.adapters.nats.streams.backup import back_up

    settings = _settings()
    made = _connected(settings, lambda nc: back_up(nc, settings, folder, time.time(), _tell))
    size = sum(one.size for one in made.streams)
    click.echo(
        f"{folder}: {len(made.streams)} streams, {size:,} bytes; restore it with: cadre restore {folder}"
    )


@click.command("restore")
@_folder
@click.option("--replace", is_flag=True, help="Remove the streams that are there. Nothing brings them back.")
def restore_command(folder: Path, replace: bool) -> None:
    """Make the deployment of a backup in FOLDER anew, at a NATS server that has none. Stop all services before, and
    start them behind it: runs go on from where they were when it was saved. What they have done since then nobody
    knows: it may be done again."""
    from cadre.adapters.nats.streams.backup import read_backup, restore

    settings, saved = _settings(), read_backup(folder)
    _connected(settings, lambda nc: restore(nc, settings, folder, saved, replace=replace, told=_tell))
    click.echo(
        f"restored at {redacted(settings.nats_url)}, as of {time.strftime('%F %T', time.localtime(saved.began_at))}"
    )


def _settings() -> Settings:
    find_nats()
    return read_settings()


def _connected(settings: Settings, work: Callable[[NatsClient], Awaitable[T]]) -> T:
    from cadre.adapters.nats.connection.connect import connect

    async def run() -> T:
        nc = await connect(settings, "cadre backup", wait=False)
        try:
            return await work(nc)
        finally:
            await nc.close()

    return asyncio.run(run())


def _tell(saved: SavedStream) -> None:
    click.echo(f"  {saved.name:<28} {saved.messages:>10,} messages {saved.size:>14,} bytes", err=True)
