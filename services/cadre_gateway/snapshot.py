"""Saves what follows from the journals to the object store: a restart need not replay them, and sums outlive runs."""

import asyncio
import logging
import time
import zlib
from typing import Literal, NamedTuple

import msgspec

from cadre.adapters.nats.erasure import FATE_SECONDS
from cadre.adapters.nats.objects.snapshots import NatsSnapshots
from cadre.errors import BusUnavailable
from cadre.protocol.messages import SCHEMA_VERSION
from cadre.protocol.topology import Topology
from cadre_gateway.index.run_index import RunIndex, TreeSummary
from cadre_gateway.index.usage_ledger import SavedLedger, UsageLedger
from cadre_gateway.retention.tree_records import SavedRecords, TreeRecords

log = logging.getLogger("cadre.gateway")

_VERSION = 4
_SAVE_EVERY_ENTRIES = 1_000
_SAVE_EVERY_SECONDS = 30.0
_MIN_PAUSE_SECONDS = 1.0
_PAUSE_FACTOR = 20
"""Between two saves lies at least so many times what the last one took."""

_MAX_AGE_SECONDS = FATE_SECONDS - 24 * 3600
"""What was erased since an older copy was saved may not be on record any more."""


class SavedIndex(msgspec.Struct, kw_only=True, rename={"records": "books"}):
    """The snapshot as it is saved."""

    v: int = _VERSION
    schema: int = SCHEMA_VERSION
    """An older gateway leaves out what it cannot read: after an upgrade the journals are read anew."""
    streams: list[str]
    """When each shard's stream was created: positions in another stream mean nothing."""
    positions: list[int]
    """Sequence of the last entry of each shard that the trees account for."""
    saved_at: float
    trees: list[TreeSummary]
    records: SavedRecords


class LoadedIndex(NamedTuple):
    """What a snapshot held."""

    runs: RunIndex
    trees: TreeRecords
    positions: list[int]
    """The sequence in each shard behind which to read on."""


class IndexSnapshots:
    """Loads the list and the records once, and saves them now and then."""

    def __init__(
        self,
        images: NatsSnapshots,
        topology: Topology,
        streams: list[str],
        *,
        every_seconds: float = _SAVE_EVERY_SECONDS,
    ) -> None:
        self._images = images
        self._name = f"index-{topology.prefix}"
        self._streams = streams
        self._every = every_seconds
        self._entries = 0
        self._saved_at = time.monotonic()
        self._took = 0.0
        self._due = asyncio.Event()

    async def load(self) -> LoadedIndex:
        """What was saved last; an empty list and no records when there is nothing to trust."""
        try:
            data = await self._images.load(self._name)
            if data is not None:
                saved = msgspec.json.decode(zlib.decompress(data), type=SavedIndex)
                known = (saved.v, saved.schema) == (_VERSION, SCHEMA_VERSION)
                young = time.time() - saved.saved_at < _MAX_AGE_SECONDS
                if known and young and saved.streams == self._streams:
                    index = RunIndex(saved.trees)
                    log.info("list of %d runs loaded, saved at %s", len(index), saved.positions)
                    return LoadedIndex(index, TreeRecords(saved.records), saved.positions)
                log.info(
                    "the saved list of runs is of other streams or another version:"
                    " reading the journals from their start"
                )
        except (BusUnavailable, zlib.error, msgspec.DecodeError) as error:
            log.warning(
                "the saved list of runs is unusable (%s): reading the journals from their start", error
            )
        return LoadedIndex(RunIndex(), TreeRecords(), [0] * len(self._streams))

    def note_change(self) -> None:
        """Takes note that one more entry was applied."""
        self._entries += 1
        if self._entries == 1 or self._entries >= _SAVE_EVERY_ENTRIES:
            self._due.set()

    def save_soon(self) -> None:
        """Has the next save come as soon as may be: what was saved is out of date."""
        self._entries += _SAVE_EVERY_ENTRIES
        self._due.set()

    async def save(self, index: RunIndex, trees: TreeRecords, positions: list[int]) -> None:
        """Saves list and records, which account for the shards up to `positions`. Raises BusUnavailable."""
        began = self._saved_at = time.monotonic()
        count, self._entries = self._entries, 0
        saved = SavedIndex(
            streams=self._streams,
            positions=positions,
            saved_at=time.time(),
            trees=index.trees(),
            records=trees.to_saved(),
        )
        data = msgspec.json.encode(saved)
        packed = await asyncio.to_thread(zlib.compress, data, 1)
        try:
            await self._images.save(self._name, packed)
        except BusUnavailable:
            self._entries += count
            raise
        finally:
            self._took = time.monotonic() - began
        log.debug("list of %d runs saved: %d bytes in %.2f s", len(index), len(packed), self._took)

    @property
    def changed(self) -> bool:
        """Whether anything was applied since the last save."""
        return self._entries > 0

    async def wait_until_due(self) -> None:
        """Returns some time after the last save when something changed, at once after 1,000 entries, but never
        so often that saving takes more than its share of the time."""
        await asyncio.sleep(max(_MIN_PAUSE_SECONDS, self._took * _PAUSE_FACTOR))
        while self._entries < _SAVE_EVERY_ENTRIES:
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


class LedgerImage(msgspec.Struct, kw_only=True):
    """The ledger as it is saved."""

    v: Literal[1] = 1
    streams: list[str]
    """When each shard's stream was created."""
    ledger: SavedLedger


class LedgerSnapshots:
    """Loads the ledger once, and saves it with the list. It cannot be made anew: the runs may be gone."""

    def __init__(self, images: NatsSnapshots, topology: Topology, streams: list[str]) -> None:
        self._images = images
        self._name = f"ledger-{topology.prefix}"
        self._streams = streams
        self._saved: list[int] | None = None
        self._saves = True

    async def load(self) -> UsageLedger:
        """What was saved last. Raises BusUnavailable: whoever began without it would save too little in its place."""
        data = await self._images.load(self._name)
        nothing = [0] * len(self._streams)
        if data is None:
            return UsageLedger(SavedLedger(positions=nothing))
        try:
            image = msgspec.json.decode(zlib.decompress(data), type=LedgerImage)
        except (zlib.error, msgspec.DecodeError) as error:
            # It may be of a newer gateway, which goes on with it.
            log.error(
                "the saved ledger is unusable (%s): this gateway counts what journals there are, and saves none",
                error,
            )
            self._saves = False
            return UsageLedger(SavedLedger(positions=nothing))
        # A stream that was made anew has nothing in it that is counted.
        known = dict(zip(image.streams, image.ledger.positions, strict=True))
        image.ledger.positions = [known.get(stream, 0) for stream in self._streams]
        return UsageLedger(image.ledger)

    async def save(self, ledger: UsageLedger) -> None:
        """Saves the ledger unless nothing was counted since. Raises BusUnavailable."""
        if not self._saves or ledger.positions == self._saved:
            return
        saved = ledger.to_saved()
        data = msgspec.json.encode(LedgerImage(streams=self._streams, ledger=saved))
        await self._images.save(self._name, await asyncio.to_thread(zlib.compress, data, 1))
        self._saved = saved.positions
