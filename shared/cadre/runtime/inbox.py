"""What becomes of a delivery from an agent's inbox: handled, given up as poison, or a dead letter.

A record is acked only when the runner says that its run accounts for it. It depends on ports alone: what
delivers, be it a server or a simulation, is somebody else's matter.
"""

from __future__ import annotations

import itertools
import logging

from cadre.delivery.codec import newer_schema, unpack_record
from cadre.delivery.newer_schema import leave_to_newer
from cadre.delivery.quarantine import Trials
from cadre.delivery.retry import retry
from cadre.delivery.sender_check import forged, misplaced
from cadre.errors import NewerSchema, TerminalError
from cadre.journal.arrivals import Poisoned
from cadre.ports import Blobs, Delivery, Marks
from cadre.protocol.messages import ErrorInfo, Report, Task
from cadre.protocol.topology import Topology, parent_of, report_id
from cadre.runtime.runner import Runner, World

log = logging.getLogger("cadre.agent")


class Inbox:
    """Handles the deliveries of one agent."""

    def __init__(
        self, agent: str, runner: Runner, world: World, blobs: Blobs, marks: Marks, topology: Topology
    ) -> None:
        self._agent = agent
        self._runner = runner
        self._world = world
        self._blobs = blobs
        self._topology = topology
        self._trials = Trials(marks, world.clock)

    async def handle(self, delivery: Delivery) -> None:
        """Settles the delivery, or leaves it to another worker."""
        if delivery.deliveries > 1 and (newer := newer_schema(delivery.data)) is not None:
            await leave_to_newer(delivery, newer)  # before its deliveries make it a suspect
            return
        tree, _ = self._topology.parse(delivery.subject)
        why = await self._trials.hear(delivery, tree, lambda: self._handle(delivery))
        if why is not None:
            await self._give_up(delivery, why)

    async def _handle(self, delivery: Delivery) -> None:
        clock = self._world.clock
        # Published again, its place says nothing of what the journal knew of it before.
        seq = 0 if delivery.retried else delivery.seq
        tries = itertools.count(delivery.deliveries)
        try:
            record = await retry(lambda: unpack_record(delivery.data, self._blobs), clock.sleep)
            sender = self._topology.sender(delivery.subject)
            if why_not := misplaced(record, delivery.subject) or forged(record, sender):
                log.error("dead letter %s: %s", delivery.subject, why_not)
                await delivery.term(why_not)
                return
            if await retry(lambda: self._runner.handle(record, next(tries), seq), clock.sleep):
                await delivery.ack()
        except NewerSchema as newer:
            await leave_to_newer(delivery, newer)  # its run's journal was written by a newer replica
        except TerminalError as error:
            why = str(error)
            log.error("dead letter %s: %s", delivery.subject, why)
            await retry(lambda: self._tell_whoever_waits(delivery, why), clock.sleep)
            await delivery.term(why)

    async def _give_up(self, delivery: Delivery, why: str) -> None:
        log.error("dead letter %s: %s", delivery.subject, why)
        try:
            await retry(lambda: self._end(delivery, why), self._world.clock.sleep)
        except NewerSchema as newer:
            await leave_to_newer(delivery, newer)
            return
        await delivery.term(why)
        await self._trials.acquit(delivery, self._topology.parse(delivery.subject)[0])

    async def _end(self, delivery: Delivery, why: str) -> None:
        """Ends the run that the poison was for."""
        tree, run_id = self._topology.parse(delivery.subject)
        try:
            record = await unpack_record(delivery.data, self._blobs)
        except TerminalError:
            record = None  # it may be the very reason: the run ends without it
        poisoned = Poisoned(
            id=record.id if record is not None else f"poison:{delivery.seq}",
            deliveries=delivery.deliveries,
            why=why,
            task=record if isinstance(record, Task) else None,
        )
        try:
            await self._runner.poison(poisoned, tree, run_id)
        except NewerSchema:
            raise  # a newer replica can end it
        except TerminalError as error:
            log.error("run %s cannot be ended: %s", run_id, error)
        if record is None:
            await self._tell_whoever_waits(delivery, why)

    async def _tell_whoever_waits(self, delivery: Delivery, why: str) -> None:
        """A task that cannot be read begins no run, but its manager waits for a Report all the same."""
        tree, run_id = self._topology.parse(delivery.subject)
        parent = parent_of(run_id)
        if parent is None or await self._world.journal.read(tree, run_id):
            return
        report = Report(
            id=report_id(run_id),
            tree=tree,
            run=parent,
            at=self._world.clock.now(),
            child=run_id,
            agent=self._agent,
            state="error",
            error=ErrorInfo("Poisoned", f"the task could not be read: {why}"),
        )
        await self._world.bus.send(report, self._agent, to=self._topology.sender(delivery.subject))
