"""Handle the deliveries of an agent's inbox: hand records to the runner, and end runs that records break.

A record is acked only when the runner says that its run accounts for it, or when it was passed on to the queue of the
run's revision. A cancellation is taken before its turn: earlier records in the queue may hang.
"""

import asyncio
import itertools
import logging

from cadre.delivery.codec import unpack_record
from cadre.delivery.persons_order import left_behind
from cadre.delivery.quarantine import Quarantine
from cadre.delivery.retry import retry
from cadre.delivery.worker import TIMER_SENDER, Job, Misaddressed, Poison, Worker, check_sender
from cadre.engine.fold import fold
from cadre.errors import CadreError, NewerSchema, TerminalError
from cadre.journal.arrivals import Poisoned
from cadre.journal.run import Phase, Run
from cadre.ports import Blobs, Delivery, FindSent, QuarantineStore
from cadre.protocol.deltas import read_cancel_hint
from cadre.protocol.memory import RECALL
from cadre.protocol.messages import Cancel, ErrorInfo, PersonsRecord, Record, Report, Task
from cadre.protocol.nats_users import SANDBOX_SENDER
from cadre.protocol.topology import Address, parent_of, report_id, tree_of
from cadre.recent import Recent
from cadre.runtime.journaling import World
from cadre.runtime.revision_queue import PASS_ON_SECONDS, Elsewhere
from cadre.runtime.runner import Runner

log = logging.getLogger("cadre.agent")

_OTHERS_TURN = (0.1, 0.3)
"""Seconds for the worker of an earlier record that is at it at this moment: it pays for the model call, too."""

HANDLER_SECONDS = 86_400.0
"""The handling of a record may take so long: far more than a model call with its wait for a place takes."""

_MOST_WAITING = 1024


class Inbox:
    """Handles the deliveries of one agent."""

    def __init__(self, agent: str, runner: Runner, world: World, blobs: Blobs, quarantine: QuarantineStore) -> None:
        self._agent = agent
        self._runner = runner
        self._world = world
        self._blobs = blobs
        trials = Quarantine(quarantine, world.clock, HANDLER_SECONDS)
        self._worker = Worker(unpack_record, self._refuse, blobs, trials, world.clock)

    async def handle(self, delivery: Delivery) -> None:
        """Settle the delivery, or leaves it to another worker."""
        await self._worker.handle(delivery, self._serve)

    async def _serve(self, job: Job[Record]) -> bool:
        record, delivery = await job.message(), job.delivery
        check_sender(record, job.address)
        # Published again, its place says nothing of what the journal knew of it before.
        seq, slot = 0 if delivery.retried else delivery.origin, delivery.address.slot
        tries = itertools.count(delivery.deliveries)
        taken_at = self._world.clock.now()
        try:
            return await retry(lambda: self._in_turn(record, next(tries), seq, slot), self._world.clock.sleep)
        except Elsewhere as other:
            if other.slot == slot:
                return False  # what this replica knows of the rollout is not what the other one knows
            await self._world.bus.pass_on(delivery, record, other.slot)
            return self._world.clock.now() - taken_at < PASS_ON_SECONDS

    async def _in_turn(self, record: Record, deliveries: int, seq: int, slot: int) -> bool:
        """Handle the record behind those that people sent before it: their worker may have died."""
        if isinstance(record, PersonsRecord) and record.follows is not None:
            await self._catch_up(record, slot)
        return await self._runner.handle(record, deliveries, seq, slot)

    async def _catch_up(self, record: Record, slot: int) -> None:
        async def is_known(id_: str) -> bool:
            for pause in (*_OTHERS_TURN, None):
                if await self._runner.accounts_for(id_, record.tree, record.run):
                    return True
                if pause is not None:
                    await self._world.clock.sleep(pause)
            return False

        for earlier in await left_behind(record, is_known, self._world.bus.find, self._blobs):
            await self._runner.account_early(earlier, slot)

    async def _refuse(self, job: Job[Record], error: TerminalError) -> None:
        log.error("dead letter %s: %s", job.delivery.subject, error)
        if isinstance(error, Poison):
            await retry(lambda: self._end_run(job, str(error)), self._world.clock.sleep)
        else:
            await retry(lambda: self._fail_whoever_waits(job, error), self._world.clock.sleep)

    async def _fail_whoever_waits(self, job: Job[Record], error: TerminalError) -> None:
        """End the run that would wait forever for an unreadable answer, or inform the manager of a task."""
        tree, run, sender = job.address.tree, job.address.leaf, job.address.sender
        entries = [stored.entry for stored in await self._world.journal.read(tree, run)]
        if entries and _awaits(fold(entries, run, tree), sender):
            await self._end_run(job, f"what {sender!r} answered cannot be taken: {error}")
        elif not entries and not isinstance(error, Misaddressed):
            await self._report_unreadable(job.address, str(error))

    async def _end_run(self, job: Job[Record], why: str) -> None:
        """End the run that the poison was for, before what people sent to it earlier: that may be what kills."""
        delivery, address = job.delivery, job.address
        try:
            record = await job.message()
        except TerminalError:
            record = None  # it may be the very reason: the run ends without it
            if not await self._world.journal.read(address.tree, address.leaf):
                await self._report_unreadable(address, why)  # it was the task, so there is no run to end
                return
        poisoned = Poisoned(
            id=record.id if record is not None else f"poison:{delivery.seq}",
            deliveries=delivery.deliveries,
            why=why,
            task=record if isinstance(record, Task) else None,
        )
        try:
            await self._runner.poison(poisoned, address.tree, address.leaf)
        except NewerSchema:
            raise  # a newer replica can end it
        except TerminalError as error:
            log.error("run %s cannot be ended: %s", address.leaf, error)

    async def _report_unreadable(self, address: Address, why: str) -> None:
        """Tell the manager of a run that never begins, as its task cannot be read: it waits for a Report."""
        run = address.leaf
        parent = parent_of(run)
        if parent is None or await self._world.journal.read(address.tree, run):
            return
        report = Report(
            id=report_id(run),
            tree=address.tree,
            run=parent,
            at=self._world.clock.now(),
            child=run,
            agent=self._agent,
            state="error",
            error=ErrorInfo("poisoned", f"the task could not be read: {why}"),
        )
        await self._world.bus.send(report, self._agent, to=address.sender)


def _awaits(run: Run, sender: str) -> bool:
    """Return whether the run may wait forever without the sender's message. People get the error at once and can send
    again."""
    if run.phase is Phase.DONE:
        return False
    if sender in (SANDBOX_SENDER, TIMER_SENDER):
        return True
    awaited = {call.name for call in run.open_calls() if call.hold is None}
    return sender in awaited or (run.recalling is not None and sender == RECALL)


class EarlyCancels:
    """Ends the runs of one agent that this process asks a model for as soon as it hears of their cancellation.

    The queue delivers the record all the same, and its handler finds it accounted for: nothing depends on this.
    """

    def __init__(self, runner: Runner, find: FindSent, blobs: Blobs) -> None:
        self._runner, self._find, self._blobs = runner, find, blobs
        self.tasks: set[asyncio.Task[None]] = set()
        """Tasks started by hints."""
        self._waiting = Recent[str, int](_MOST_WAITING)
        """Cancellations of runs that this process does not ask a model for, and may soon."""
        runner.on_ask = self._is_asking

    def hear(self, hint: str) -> None:
        """Take a hint of any kind: those that are not cancellations name what is to stop."""
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
