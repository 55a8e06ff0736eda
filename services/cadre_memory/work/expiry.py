"""Removes what should not be kept any longer: what has expired, and what belonged to trees that were erased."""

from __future__ import annotations

import asyncio
import logging

from cadre.delivery.codec import decode
from cadre.delivery.newer_schema import leave_to_newer
from cadre.delivery.retry import retry
from cadre.errors import CadreError, NewerSchema, TerminalError
from cadre.ports import Clock, Delivery
from cadre.protocol.messages import Erased, Fate
from cadre.recent import Recent
from cadre_memory.index import scopes
from cadre_memory.index.vector_index import Index, Where

log = logging.getLogger("cadre.memory")

REAP_EVERY = 600.0
"""Seconds. What has expired is not shown from its moment on; this is when it leaves the disk."""


async def reap(index: Index, clock: Clock) -> None:
    """For as long as the service lives."""
    while True:
        try:
            if gone := await index.expire(clock.now()):
                log.info("%d chunks have expired and are removed", gone)
        except CadreError as error:
            log.warning("what has expired is removed later: %s", error)
        await asyncio.sleep(REAP_EVERY)


_REMEMBERED = 4096
"""Erased trees."""


class Mourning:
    """Hears which trees were erased, from their shard's stream: also those of the time when no service ran."""

    def __init__(self, index: Index, clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._erased = Recent[str, None](_REMEMBERED)

    async def forget_if_erased(self, tree: str) -> None:
        """For what was in hand while its tree was erased, and was stored behind that."""
        if tree in self._erased:
            await self._index.delete(within=scopes.of_tree(tree), where=Where())

    async def handle(self, delivery: Delivery) -> None:
        """Removes the memories of scope `run` of an erased tree; those that others share stay."""
        try:
            fate: Fate = decode(delivery.data, Fate)
            if isinstance(fate, Erased):
                self._erased[fate.tree] = None
                within = scopes.of_tree(fate.tree)
                gone = await retry(
                    lambda: self._index.delete(within=within, where=Where()), self._clock.sleep
                )
                if gone:
                    log.info("run %s was erased: %d chunks of its memories with it", fate.tree, gone)
        except NewerSchema as newer:
            await leave_to_newer(delivery, newer)
            return
        except TerminalError as error:
            await delivery.term(str(error))
            return
        await delivery.ack()
