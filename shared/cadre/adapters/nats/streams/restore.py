"""Restoring of a deployment from a backup; the one that it replaces is saved first, and comes back if that fails."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.queues.consumers import create_consumer
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.backup import (
    API_KEYS,
    Backup,
    Deployment,
    SavedStream,
    account_name,
    read_backup,
    restore_stream,
    save_streams,
)
from cadre.adapters.nats.streams.provision import (
    RestoreMark,
    existing,
    new_mark,
    read_mark,
    remove_mark,
    stream_names,
    write_mark,
)
from cadre.errors import CadreError, SetupError
from cadre.protocol.topology import Topology
from cadre.settings import Settings


class RestoreListener(NamedTuple):
    """The callbacks that a restore reports to."""

    stream: Callable[[SavedStream], None]
    saved: Callable[[Path, str], None]
    """Called with the folder in which the deployment that is there was saved, and the command that brings it back,
    before anything is removed."""


class Restored(NamedTuple):
    """The result of a restore."""

    replaced: Path | None
    """The folder in which the deployment that it replaced is saved; None where there was none."""
    revoked: list[str]
    """Ids of the API keys of the backup that stay revoked."""


class _Before(NamedTuple):
    """The deployment that was there, as it is saved."""

    folder: Path
    saved: Backup


async def restore(
    nc: Client, settings: Settings, folder: Path, saved: Backup, *, replace: bool, told: RestoreListener
) -> Restored:
    """Restore the deployment of a backup where no deployment exists; with `replace`, replace the existing one, which is
    saved next to the backup first.

    Raise SetupError, before anything is changed where it can be known then, and BusUnavailable. When it fails later,
    what was there is put back, or the error names the command that does it.
    """
    _check_content(settings, saved)
    mark = await read_mark(nc, settings.prefix)
    there = await _streams_there(nc, settings, saved)
    if mark is not None and not replace:
        raise SetupError(f"a restore did not end: go back by `{mark.command}` on {mark.host}")
    if there and not replace:
        raise SetupError(
            f"there are streams already ({', '.join(there)}): stop all services, and take --replace to replace them"
        )
    if there:
        await _check_account(nc, saved)
    before = _before_of(mark, folder, saved) if mark is not None else None
    if mark is None and there:
        before = await _save(nc, settings, saved, there, folder, told)
    mark = new_mark(before.folder if before is not None else folder, is_saved=before is not None)
    await write_mark(nc, settings, mark)
    work = _Restore(nc, settings, told.stream)
    try:
        await work.run(folder, saved, before)
    except BaseException as error:
        # Also what is interrupted is put back; a second interrupt ends that.
        if outcome := await _go_back(work, before, folder, mark, error):
            raise SetupError(outcome) from error
        raise
    await remove_mark(nc, settings.prefix)
    revoked = _stay_revoked(saved, before)
    return Restored(before.folder if before is not None else None, revoked)


async def _go_back(
    work: "_Restore", before: _Before | None, folder: Path, mark: RestoreMark, error: BaseException
) -> str:
    """Put back what was there; returns what came of it, for the error."""
    failed = f"the restore failed ({str(error) or type(error).__name__})"
    by_hand = f"once the server works, run `{mark.command}`"
    if before is not None and _is_same(before.folder, folder):
        return f"{failed}: {by_hand}"
    try:
        if before is not None:
            await work.run(before.folder, before.saved, None)
        else:
            await work.clear()
        await work.unmark()
    except (CadreError, OSError) as second:
        return f"{failed}, and what was there could not be put back ({second}): {by_hand}"
    return f"{failed}: {'what was there is back' if before is not None else 'the server is empty again'}"


def _check_content(settings: Settings, saved: Backup) -> None:
    if saved.prefix != settings.prefix:
        raise SetupError(
            f"the backup is of the prefix {saved.prefix!r}, and CADRE_PREFIX is {settings.prefix!r}: streams"
            " keep their names"
        )
    known = {*stream_names(Topology(saved.shards, saved.prefix))}
    if others := [one.name for one in saved.streams if one.name not in known]:
        raise SetupError(f"the backup holds streams that do not belong to Cadre: {', '.join(others)}")


async def _check_account(nc: Client, saved: Backup) -> None:
    """Raise SetupError for a backup of another account than the one whose deployment it would take the place of."""
    account = await account_name(nc)
    if saved.account and account and saved.account != account:
        raise SetupError(
            f"the backup is of the NATS account {saved.account!r}, and this one, {account!r}, has a deployment of its"
            " own: restore it with the key of the former, or into an account that has none"
        )


async def _streams_there(nc: Client, settings: Settings, saved: Backup) -> list[str]:
    """Return the names of Cadre's existing streams, for any number of shards."""
    topologies = [Topology(saved.shards, settings.prefix)]
    if (found := await existing(nc, settings)) is not None:
        topologies.append(found)
    names = dict.fromkeys(name for one in topologies for name in stream_names(one))
    return [name for name in names if await jetstream.stream_info(nc, name) is not None]


def _before_of(mark: RestoreMark, folder: Path, saved: Backup) -> _Before | None:
    """Return what a restore that did not end took the place of; None where there was nothing. Raises SetupError where
    it cannot be read here: it would be lost."""
    if not mark.is_saved:
        return None
    if _is_same(mark.folder, folder):
        return _Before(folder, saved)
    try:
        return _Before(mark.folder, read_backup(mark.folder))
    except SetupError as error:
        raise SetupError(
            f"a restore did not end, and what it took the place of lies in {mark.folder} on {mark.host}, which cannot"
            f" be read here ({error}): bring that folder here, or give it up by removing the stream that marks the"
            " restore (`nats stream rm`)"
        ) from error


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


async def _save(
    nc: Client, settings: Settings, saved: Backup, there: list[str], folder: Path, told: RestoreListener
) -> _Before:
    """Save the streams that are there in a new folder next to the backup. Raises SetupError, BusUnavailable."""
    topology = await existing(nc, settings) or Topology(saved.shards, settings.prefix)
    infos = [await jetstream.stream_info(nc, name) for name in there]
    place = _place_beside(folder, sum(info["state"]["bytes"] for info in infos if info is not None))
    made = await save_streams(nc, Deployment(topology, there), place, time.time(), lambda _: None)
    told.saved(place, new_mark(place, is_saved=True).command)
    return _Before(place, made)


def _place_beside(folder: Path, needed: int) -> Path:
    """Return the name of a folder next to the backup. Raises SetupError where that has less room than needed."""
    place = folder.resolve()
    place = place.with_name(f"{place.name}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    free = shutil.disk_usage(place.parent).free
    if free < needed:
        raise SetupError(
            f"what is there is saved before it is replaced, which takes up to {needed:,} bytes, and {place.parent} has"
            f" {free:,} left: make room there, or move the backup to another disk"
        )
    return place


def _stay_revoked(saved: Backup, before: _Before | None) -> list[str]:
    """Return the ids of the backup's API keys that the deployment before had revoked: its audit trail says so, or it is
    the deployment of the backup, gone on, and has them no more."""
    if before is None:
        return []
    revoked = {*before.saved.revoked}
    stream = Topology(saved.shards, saved.prefix).automation_stream
    if saved.created(stream) == before.saved.created(stream):
        revoked |= {*saved.keys} - {*before.saved.keys}
    return sorted(revoked & {*saved.keys})


class _Restore:
    """The steps of a restore at one server."""

    def __init__(self, nc: Client, settings: Settings, told: Callable[[SavedStream], None]) -> None:
        self._nc = nc
        self._settings = settings
        self._told = told
        self._shards = settings.shards

    async def unmark(self) -> None:
        """Note that it has ended. Raises BusUnavailable."""
        await remove_mark(self._nc, self._settings.prefix)

    async def clear(self) -> None:
        """Remove all of Cadre's streams. Raises BusUnavailable."""
        found = await existing(self._nc, self._settings)
        # A growth that has only begun has made streams that hold nothing yet.
        there = (found.shards, found.layout.growing) if found is not None else ()
        shards = max(self._shards, *there, 0)
        for name in stream_names(Topology(shards, self._settings.prefix)):
            if await jetstream.stream_info(self._nc, name) is not None:
                await jetstream.ask(self._nc, f"removing stream {name}", f"STREAM.DELETE.{name}")

    async def run(self, folder: Path, saved: Backup, before: _Before | None) -> None:
        """Replace what is there by the backup. Raises BusUnavailable, SetupError, OSError."""
        self._shards = max(self._shards, saved.shards, before.saved.shards if before is not None else 0)
        await self.clear()
        topology = Topology(saved.shards, saved.prefix)
        for one in saved.streams:
            await restore_stream(self._nc, one.name, folder / one.name, self._settings.replicas)
            self._told(one)
            if one.name == topology.automation_stream:
                for key in _stay_revoked(saved, before):
                    await jetstream.purge(self._nc, one.name, topology.definition(API_KEYS, key))
        for queue in saved.queues:
            begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": queue.done + 1}
            config = {key: value for key, value in queue.config.items() if key not in ("metadata", "num_replicas")}
            await create_consumer(self._nc, queue.stream, config["durable_name"], config | begin)
