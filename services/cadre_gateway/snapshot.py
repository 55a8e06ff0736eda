"""Keeps a compacted copy of the index in the object store, so that a restart does not replay all journals."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.erasure import REMEMBERED
from cadre.adapters.nats.objects.snapshots import NatsImages
from cadre.errors import BusUnavailable
from cadre.protocol.messages import SCHEMA_VERSION
from cadre.protocol.topology import Topology
from cadre_gateway.index.run_list import Index, Tree
from cadre_gateway.retention.ledger import Books, Ledger

log = logging.getLogger("cadre.gateway")

_VERSION = 3
_EVERY_ENTRIES = 1_000
_EVERY_SECONDS = 30.0
_PAUSE = 1.0
_SHARE = 20
"""Saving may take one part in this many of the time."""

_USABLE = REMEMBERED - 24 * 3600
"""Seconds: what was erased since an older copy was saved may not be on record any more."""


class Image(msgspec.Struct, kw_only=True):
    v: int = _VERSION
    schema: int = SCHEMA_VERSION
    """An older gateway leaves out what it cannot read: after an upgrade the journals are read anew."""
    streams: list[str]
    """When each shard's stream was created: positions in another stream mean nothing."""
    positions: list[int]
    """Sequence of the last entry of each shard that the trees account for."""
    saved_at: float
    trees: list[Tree]
    books: Books


class Loaded(NamedTuple):
    runs: Index
    ledger: Ledger
    positions: list[int]
    """Where to read on."""


class Keeper:
    """Loads index and ledger once, and saves them now and then."""

    def __init__(
        self,
        images: NatsImages,
        topology: Topology,
        streams: list[str],
        *,
        every_seconds: float = _EVERY_SECONDS,
    ) -> None:
        self._images = images
        self._name = f"index-{topology.prefix}"
        self._streams = streams
        self._every = every_seconds
        self._entries = 0
        self._saved_at = time.monotonic()
        self._took = 0.0
        self._due = asyncio.Event()

    async def load(self) -> Loaded:
        """What was saved last; empty when there is nothing to trust."""
        try:
            data = await self._images.load(self._name)
            if data is not None:
                image = msgspec.json.decode(zlib.decompress(data), type=Image)
                known = (image.v, image.schema) == (_VERSION, SCHEMA_VERSION)
                young = time.time() - image.saved_at < _USABLE
                if known and young and image.streams == self._streams:
                    index = Index(image.trees)
                    log.info("list of %d runs loaded, saved at %s", len(index), image.positions)
                    return Loaded(index, Ledger(image.books), image.positions)
                log.info(
                    "the saved list of runs is of other streams or another version:"
                    " reading the journals from their start"
                )
        except (BusUnavailable, zlib.error, msgspec.DecodeError) as error:
            log.warning(
                "the saved list of runs is unusable (%s): reading the journals from their start", error
            )
        return Loaded(Index(), Ledger(), [0] * len(self._streams))

    def note(self) -> None:
        """One more entry was applied."""
        self._entries += 1
        if self._entries == 1 or self._entries >= _EVERY_ENTRIES:
            self._due.set()

    def hurry(self) -> None:
        """What was saved is not to stay longer than need be."""
        self._entries += _EVERY_ENTRIES
        self._due.set()

    async def save(self, index: Index, ledger: Ledger, positions: list[int]) -> None:
        """Raises BusUnavailable."""
        began = self._saved_at = time.monotonic()
        counted, self._entries = self._entries, 0
        image = Image(
            streams=self._streams,
            positions=positions,
            saved_at=time.time(),
            trees=index.trees(),
            books=ledger.books(),
        )
        data = msgspec.json.encode(image)
        packed = await asyncio.to_thread(zlib.compress, data, 1)
        try:
            await self._images.save(self._name, packed)
        except BusUnavailable:
            self._entries += counted
            raise
        finally:
            self._took = time.monotonic() - began
        log.debug("list of %d runs saved: %d bytes in %.2f s", len(index), len(packed), self._took)

    @property
    def changed(self) -> bool:
        return self._entries > 0

    async def wait_until_due(self) -> None:
        """Returns some time after the last save when something changed, at once after 1,000 entries, but never
        so often that saving takes more than its share of the time."""
        await asyncio.sleep(max(_PAUSE, self._took * _SHARE))
        while self._entries < _EVERY_ENTRIES:
            left = self._saved_at + self._every - time.monotonic()
            if left <= 0 and self._entries:
                return
            self._due.clear()
            try:
                # Before Python 3.12 wait_for forgets a cancellation that comes together with the news.
                async with asyncio.timeout(left if left > 0 else None):
                    await self._due.wait()
            except TimeoutError:
                continue
