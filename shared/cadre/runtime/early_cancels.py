"""Takes cancellations before their turn: in the queue they may lie behind calls that hang, the run's own among them."""

import asyncio
import logging

from cadre.delivery.codec import unpack_record
from cadre.delivery.sender_check import check_sender
from cadre.errors import CadreError
from cadre.ports import Blobs, FindSent
from cadre.protocol.deltas import read_cancel_hint
from cadre.protocol.messages import Cancel
from cadre.protocol.topology import tree_of
from cadre.recent import Recent
from cadre.runtime.revision_queue import Elsewhere
from cadre.runtime.runner import Runner

log = logging.getLogger("cadre.agent")

_MOST_WAITING = 1024


class EarlyCancels:
    """Ends the runs of one agent that this process asks a model for as soon as it hears of their cancellation.

    The queue delivers the record all the same, and whoever takes it finds it accounted for: nothing hangs on this.
    """

    def __init__(self, runner: Runner, find: FindSent, blobs: Blobs) -> None:
        self._runner, self._find, self._blobs = runner, find, blobs
        self.tasks: set[asyncio.Task[None]] = set()
        """What hints have begun."""
        self._waiting = Recent[str, int](_MOST_WAITING)
        """Cancellations of runs that this process does not ask a model for, and may soon."""
        runner.on_ask = self._is_asking

    def hear(self, hint: str) -> None:
        """Takes a hint of whatever kind: the others name what is to stop."""
        cancel = read_cancel_hint(hint)
        if cancel is None:
            self._runner.interrupt(hint)
        elif self._runner.is_asking(cancel[0]):
            self._begin(*cancel)
        else:
            self._waiting[cancel[0]] = cancel[1]

    def _is_asking(self, run: str) -> None:
        if seq := self._waiting.pop(run, 0):
            self._begin(run, seq)

    def _begin(self, run: str, seq: int) -> None:
        task = asyncio.create_task(self._take(run, seq), name=f"cancellation of {run}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _take(self, run: str, seq: int) -> None:
        try:
            stored = await self._find(tree_of(run), seq)
            if stored is None or (address := stored.address).leaf != run:
                return
            record = await unpack_record(stored.data, self._blobs)
            check_sender(record, address)
            if isinstance(record, Cancel):
                await self._runner.account_early(record)
        except (CadreError, Elsewhere) as error:
            log.info("the cancellation of %s is left to the queue: %s", run, error)
