"""Saves the ledger to the object store: its sums outlive the runs that they are of."""

import asyncio
import logging
import zlib
from typing import Literal

import msgspec

from cadre.adapters.nats.object_store import NatsSnapshots
from cadre.protocol.topology import Topology
from cadre_gateway.index.usage_ledger import SavedLedger, UsageLedger

log = logging.getLogger("cadre.gateway")


class LedgerImage(msgspec.Struct, kw_only=True):
    """The ledger as it is saved."""

    v: Literal[1] = 1
    streams: list[str]
    """Creation time of each shard's stream; new shards are appended."""
    ledger: SavedLedger


class LedgerSnapshots:
    """Loads the ledger once, and saves it. It cannot be made anew as the index can: the runs may be gone."""

    def __init__(self, images: NatsSnapshots, topology: Topology, streams: list[str]) -> None:
        self._images = images
        self._name = f"ledger-{topology.prefix}"
        self.streams = streams
        self._saved: list[int] | None = None
        self._saves = True

    async def load(self) -> UsageLedger:
        """What was saved last. Raises BusUnavailable: whoever began without it would save too little in its place."""
        data = await self._images.load(self._name)
        nothing = [0] * len(self.streams)
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
        image.ledger.positions = [known.get(stream, 0) for stream in self.streams]
        return UsageLedger(image.ledger)

    async def save(self, ledger: UsageLedger) -> None:
        """Saves the ledger unless nothing was counted since. Raises BusUnavailable."""
        if not self._saves or ledger.positions == self._saved:
            return
        saved = ledger.to_saved()
        data = msgspec.json.encode(LedgerImage(streams=self.streams, ledger=saved))
        await self._images.save(self._name, await asyncio.to_thread(zlib.compress, data, 1))
        self._saved = saved.positions
