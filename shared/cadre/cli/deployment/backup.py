"""`cadre backup` and `cadre restore`: a deployment's streams in a folder, and back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cadre.adapters.local_stack import find_nats
from cadre.cli.deployment.memory import MEMORY
from cadre.cli.deployment.streams import connected
from cadre.cli.terminal.gateway import Gateway
from cadre.protocol.nats_users import redacted
from cadre.settings import Settings, read_settings

if TYPE_CHECKING:
    from cadre.adapters.nats.streams.backup import SavedStream

_folder = click.argument("folder", type=click.Path(path_type=Path))


MEMORIES = "memories.jsonl"
"""The file of memories in a backup that has them."""


@click.command("backup")
@_folder
@click.option("--memories", is_flag=True, help=f"Save all memories too, by the gateway, in {MEMORIES}.")
def command(folder: Path, memories: bool) -> None:
    """Save all streams and buckets of the deployment in FOLDER, which is made: runs, files, schedules, keys, the audit
    trail. Services may go on meanwhile. With NATS users it takes the operator's key; for memories an administrator's
    of the gateway, too."""
    from cadre.adapters.nats.streams.backup import back_up

    async def more() -> None:
        await asyncio.to_thread(_save_memories, folder / MEMORIES)

    settings = _settings()
    made = connected(settings, lambda nc: back_up(nc, settings, folder, time.time(), _tell, more if memories else None))
    size = sum(one.size for one in made.streams)
    click.echo(f"{folder}: {len(made.streams)} streams, {size:,} bytes; restore it with: cadre restore {folder}")


@click.command("restore")
@_folder
@click.option("--replace", is_flag=True, help="Replace the deployment that is there, which is saved next to FOLDER.")
def restore_command(folder: Path, replace: bool) -> None:
    """Restore the deployment of the backup in FOLDER to a NATS server that has none. Stop all services before, and
    start them behind it: runs go on from where they were when it was saved. What they have done since then is not
    known: it may be done again. API keys that the replaced deployment had revoked stay revoked.

    Every file is compared with its digest before anything is changed. A restore that fails puts back what was there."""
    from cadre.adapters.nats.streams.backup import read_backup
    from cadre.adapters.nats.streams.restore import RestoreListener, restore

    settings, saved = _settings(), read_backup(folder)
    told = RestoreListener(_tell, _tell_saved)
    done = connected(settings, lambda nc: restore(nc, settings, folder, saved, replace=replace, told=told))
    click.echo(
        f"restored at {redacted(settings.nats_url)}, as of {time.strftime('%F %T', time.localtime(saved.began_at))}"
    )
    if done.replaced is not None:
        click.echo(f"what was there before is in {done.replaced}: remove it once you do not need it")
    if done.revoked:
        click.echo(f"API keys that stay revoked: {', '.join(done.revoked)}")
    if done.replaced is None:
        click.echo(
            f"the server had no deployment, so which API keys were revoked since is not known: the backup holds"
            f" {len(saved.keys)}; see `cadre keys list`, and revoke such keys by `cadre keys revoke`"
        )
    if (folder / MEMORIES).is_file():
        click.echo(f"once the services run again: cadre memory import {folder / MEMORIES}")


def _save_memories(file: Path) -> None:
    """Raise CommandFailed."""
    with Gateway() as gateway, file.open("wb") as opened:
        gateway.download(f"{MEMORY}/export?all=true", opened)
    click.echo(f"  {MEMORIES:<28} {file.stat().st_size:>34,} bytes", err=True)


def _settings() -> Settings:
    find_nats()
    return read_settings()


def _tell(saved: SavedStream) -> None:
    click.echo(f"  {saved.name:<28} {saved.messages:>10,} messages {saved.size:>14,} bytes", err=True)


def _tell_saved(folder: Path, command: str) -> None:
    click.echo(f"what is there is saved in {folder}; if this is cut off: {command}", err=True)
