"""Removes what should not be kept any longer: what has expired, and what belonged to trees that were erased."""

import asyncio
import logging

from cadre.delivery.codec import decode
from cadre.delivery.ended_runs import EndedRuns
from cadre.delivery.retry import retry
from cadre.delivery.worker import defer_to_newer
from cadre.errors import CadreError, NewerSchema, TerminalError
from cadre.ports import Clock, Delivery
from cadre.protocol.messages import Erased, Lifecycle
from cadre_memory.index import scopes
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Where

log = logging.getLogger("cadre.memory")

EXPIRE_EVERY_SECONDS = 600.0
"""Seconds between removals from the disk; expired memories are hidden from their moment of expiry on."""


async def expire_periodically(index: MemoryIndex, clock: Clock) -> None:
    """Remove what has expired, every EXPIRE_EVERY_SECONDS, until it is cancelled."""
    while True:
        try:
            if gone := await index.expire(clock.now()):
                log.info("%d chunks have expired and are removed", gone)
        except CadreError as error:
            log.warning("what has expired is removed later: %s", error)
        await asyncio.sleep(EXPIRE_EVERY_SECONDS)


class ErasureListener:
    """Reads from the shards' streams which trees were erased, also while no service ran, and removes their memories."""

    def __init__(self, index: MemoryIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._erased = EndedRuns()

    async def forget_if_erased(self, tree: str) -> None:
        """Remove what was stored only after its tree had been erased."""
        if self._erased.covers(tree):
            await self._index.delete(within=scopes.of_tree(tree), where=Where())

    async def handle(self, delivery: Delivery) -> None:
        """Remove the memories of scope `run` of an erased tree; those that others share stay."""
        try:
            lifecycle: Lifecycle = decode(delivery.data, Lifecycle)
            if isinstance(lifecycle, Erased):
                self._erased.add(lifecycle.tree)
                within = scopes.of_tree(lifecycle.tree)
                gone = await retry(lambda: self._index.delete(within=within, where=Where()), self._clock.sleep)
                if gone:
                    log.info("run %s was erased: %d chunks of its memories with it", lifecycle.tree, gone)
        except NewerSchema as newer:
            await defer_to_newer(delivery, newer)
            return
        except TerminalError as error:
            await delivery.term(str(error))
            return
        await delivery.ack()
