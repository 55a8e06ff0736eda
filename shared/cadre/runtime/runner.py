"""The shell around the pure loop: load, decide, journal, pay; and the model call, paid in place.

`handle` says whether its record may be acked: the journal accounts for it, and what that made owed has
been paid. It may be called for the same record by any number of workers at once; the fence decides.
A worker that finds its model call taken over by another walks away without an ack: the record is
what keeps the run alive, and it is the other's now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from cadre.errors import Fenced
from cadre.loop.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned
from cadre.loop.events import Entry
from cadre.loop.fold import apply_entry, fold
from cadre.loop.forking import ForkError, prefix_of
from cadre.loop.observation import observation_of
from cadre.loop.offer import Offer
from cadre.loop.owed import CallModel, Command, Revoke, Send, SetTimer, owed
from cadre.loop.run import ModelInFlight, Phase, Run, Step
from cadre.loop.timers import ended
from cadre.loop.transition import transition
from cadre.loop.view import base_tokens
from cadre.loop.work_summary import work_of
from cadre.ports import Bus, Clock, Journal, Model
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Cancel, Record, Report, RunState, Task, TimerFired
from cadre.protocol.topology import tree_of
from cadre.runtime.model_calls import ModelCalls
from cadre.runtime.run_cache import Held, RunCache
from cadre.spec.agent import AgentSpec
from cadre.spec.prices import Prices
from cadre.telemetry.metrics.journaled import figures_of
from cadre.telemetry.metrics.meters import Meters
from cadre.telemetry.metrics.names import AGENT, FENCE_LOSSES

log = logging.getLogger("cadre.runner")

NO_PRICES = Prices()
NO_OFFER = Offer()

_BASES_KEPT = 4

SHORT_WAIT = 1.0
"""Seconds up to which a worker waits itself: message schedules are no use below their tick."""


ANSWERED: tuple[RunState, ...] = ("success", "max_steps_error")
"""Ends with an answer."""


class World(NamedTuple):
    """Everything outside the process that a run can reach."""

    journal: Journal
    bus: Bus
    model: Model
    clock: Clock


class TakenOver(Exception):
    """Another worker goes on with the record in hand."""


class Runner:
    """Takes the runs of one agent forward."""

    def __init__(
        self,
        spec: AgentSpec,
        prompts: Prompts,
        world: World,
        offer: Callable[[], Offer],
        prices: Prices = NO_PRICES,
    ) -> None:
        self._spec = spec
        self._prompts = prompts
        self._journal, self._bus, model, self._clock = world
        self._offer = offer
        self._cache = RunCache(self._journal, prompts)
        self._bases: list[tuple[Offer, int]] = []
        self._calls = ModelCalls(model, self._bus, self._clock, spec.name, prices)
        self.meters = Meters(on=False)

    async def handle(self, record: Record, deliveries: int = 1, seq: int = 0) -> bool:
        """Accounts for one inbox record; true when it may be acked, false when it is another worker's now.

        `seq` is where the record lies in the stream that holds the journal too. Raises RetryableError when
        the bus fails: call it again, counting one delivery more.
        """
        try:
            commands = await self._account(record, deliveries, seq)
            await self._settle(record.id, record.tree, record.run, commands)
        except TakenOver:
            log.info("%s is in other hands", record.id)
            return False
        return True

    async def poison(self, what: Poisoned, tree: str, run: str) -> None:
        """Ends the run whose record no worker survives."""
        record_id = what.id
        reminded = False
        while True:
            async with self._cache.locked(tree, run) as held:
                known = record_id in held.run.seen
                if known and held.run.phase is Phase.DONE:
                    commands = owed(held.run)
                    break
                if not reminded:
                    # Somebody else may be handling the record now, and ack it: what the end owes must not hang on it.
                    await self._bus.send(self._reminder(what, tree, run), self._spec.name, to=self._spec.name)
                    reminded = True
                try:
                    # What kills its workers may well be what follows from the record, once it is journaled.
                    cause = f"{record_id}:poisoned" if known else record_id
                    commands = await self._advance(held, what, entry_cause=cause, record_id=record_id)
                    break
                except Fenced:
                    continue
        await self._pay(commands)

    def _reminder(self, what: Poisoned, tree: str, run: str) -> Cancel:
        return Cancel(
            id=f"{what.id}:condemned",
            tree=tree,
            run=run,
            at=self._clock.now(),
            reason=what.why or "its record could not be handled",
            sender=self._spec.name,
        )

    def interrupt(self, run: str) -> None:
        """The run has ended: drops the model call that this process may be making for it."""
        self._calls.abort(run)

    # --- load, decide, journal

    async def _account(self, record: Record, deliveries: int, seq: int) -> list[Command]:
        """Journals the record unless it is journaled already; returns what is to be paid now."""
        # A first delivery of a task most likely begins its run: no need to look, the fence will tell.
        fresh = isinstance(record, Task) and deliveries == 1
        while True:
            async with self._cache.locked(record.tree, record.run, fresh=fresh) as held:
                try:
                    if record.id not in held.run.seen:
                        return await self._advance(held, record, entry_cause=record.id, record_id=record.id)
                    if seq > held.seq:
                        return []  # published again after it was accounted for: the first one sees to the rest
                    return await self._take_over(held, record.id, deliveries)
                except Fenced:
                    fresh = False

    async def _take_over(self, held: Held, record_id: str, deliveries: int) -> list[Command]:
        """The record's former worker may have died before it paid; its model call died with it."""
        model = held.run.model
        if model is None or model.cause != record_id:
            # Calls and waits of other records are not this one's: it may be acked, and could not keep them alive.
            return [debt for debt in owed(held.run) if _is_of(debt, record_id)]
        if deliveries == 1:
            # The server forgets a delivery that it is killed right after, so the call may be in good hands.
            # Un-acked, the record comes again as soon as they give no sign of life.
            raise TakenOver
        lost = ModelLost(attempt=model.attempt)
        cause = f"{record_id}:lost:{model.purpose}:{model.step}:{model.attempt}"
        await self._advance(held, lost, entry_cause=cause, record_id=record_id)
        return [debt for debt in owed(held.run) if _is_of(debt, record_id)]

    async def _advance(
        self,
        held: Held,
        what: Record | ModelReplied | ModelFailed | ModelLost | Poisoned,
        *,
        entry_cause: str,
        record_id: str,
    ) -> list[Command]:
        """One append, under the lock of the run. Raises Fenced, with the stale state forgotten.

        What follows from the entry is worked out while it is on its way, and counts once it has arrived.
        """
        run = held.run
        arrival = await self._arrival(run, what, record_id)
        events = transition(run, arrival)
        ends_timer = ended(run, events, what.name if isinstance(what, TimerFired) else None)
        was_over = run.phase is Phase.DONE
        at_work = run.model is not None or run.code is not None or bool(run.open_calls())
        entry = Entry(
            tree=run.tree,
            run=run.id,
            agent=self._spec.name,
            parent=_parent(run, what),
            n=run.entries + 1,
            cause=entry_cause,
            at=arrival.at,
            events=events,
            prev=held.back_pointers(),
            snapshot=run if held.is_snapshot_due() else None,
        )
        figures = figures_of(run, entry, what) if self.meters.on else []
        commands: list[Command] = []

        def go_on() -> None:
            apply_entry(run, entry)
            # Whoever ended the run may have died before it paid; a record that comes later reminds of it.
            commands.extend(owed(run) if was_over else owed(run, since=entry.n))
            if any(isinstance(command, CallModel) for command in commands):
                held.transcript.catch_up(run)

        try:
            appended = await self._journal.append(entry, held.seq, ends_timer=ends_timer, meanwhile=go_on)
        except BaseException as error:
            if isinstance(error, Fenced):
                self.meters.record(FENCE_LOSSES, 1, {AGENT: self._spec.name})
            # Fenced, or nobody knows: the next one folds again.
            self._cache.spoil(held)
            raise
        if figures:
            self.meters.record_all(figures)
        held.appended(appended.seq, appended.size, snapshot=entry.snapshot is not None)
        if run.phase is Phase.DONE:
            self._cache.forget(held)
            if at_work and not isinstance(what, ModelReplied | ModelFailed):
                self.interrupt(run.id)
                await self._bus.interrupt(run.tree, run.id)
        return commands

    async def _arrival(
        self, run: Run, what: Record | ModelReplied | ModelFailed | ModelLost | Poisoned, record_id: str
    ) -> Arrival:
        """With all that the decision may know, the memory of the run that a task goes on from included."""
        at = self._clock.now()
        offer = self._offer()
        history: list[Step] = []
        prefix: list[Step] = []
        problem = ""
        if isinstance(what, Task) and run.phase is Phase.NEW:
            if what.continues:
                history = (await self._run(what.continues)).memory
            if what.forks is not None:
                try:
                    history, prefix = prefix_of(await self._run(what.forks.run), what.forks)
                except ForkError as error:
                    problem = str(error)
        return Arrival(
            what=what,
            at=at,
            cause=record_id,
            offer=offer,
            spec=self._spec,
            history=history,
            prefix=prefix,
            problem=problem,
            base=self._base_of(NO_OFFER) if isinstance(what, Task) else 0,
            base_with_offer=self._base_of(offer),
        )

    def _base_of(self, offer: Offer) -> int:
        """Measured anew only when the offer changes."""
        for known, tokens in self._bases:
            if known is offer:
                return tokens
        run = Run(id="", tree="", spec=self._spec, tools=offer.tools, members=offer.members)
        tokens = base_tokens(run, self._prompts)
        self._bases = [(offer, tokens), *self._bases[: _BASES_KEPT - 1]]
        return tokens

    async def _run(self, run: str) -> Run:
        """Another run's state."""
        tree = tree_of(run)
        return fold((stored.entry for stored in await self._journal.read(tree, run)), run, tree)

    # --- pay

    async def _settle(self, record_id: str, tree: str, run_id: str, commands: list[Command]) -> None:
        """Pays, and goes on for as long as what was paid has an answer in this very process."""
        while True:
            waiting = await self._pay(commands)
            if waiting is not None:
                await self._clock.sleep(max(0.0, waiting.due - self._clock.now()))
                commands = await self._goes_off(record_id, waiting.timer)
                continue
            mine = next((c for c in commands if isinstance(c, CallModel) and c.cause == record_id), None)
            if mine is None:
                return
            commands = await self._ask(record_id, tree, run_id, mine)

    async def _pay(self, commands: list[Command]) -> SetTimer | None:
        """Sends and schedules; returns the timer that is too short for a schedule."""
        short: SetTimer | None = None
        payments = []
        for command in commands:
            match command:
                case Send():
                    payments.append(self._send(command))
                case SetTimer() if command.cause is not None and command.due - command.began <= SHORT_WAIT:
                    short = command
                case SetTimer():
                    payments.append(self._bus.schedule(command.timer, self._spec.name, command.due))
                case Revoke():
                    payments.append(self._bus.revoke(command.result))
                case CallModel():
                    pass
        if len(payments) == 1:
            await payments[0]
        elif payments:
            await asyncio.gather(*payments)
        return short

    async def _send(self, command: Send) -> None:
        message = command.message
        if isinstance(message, Report):
            text = self._report_text(message)
            if command.with_summary and message.state in ANSWERED:
                work = work_of(await self._run(message.child), self._prompts)
                text = f"{text}\n\n{self._prompts.managed_summary(message.agent, work)}"
            message = msgspec.structs.replace(message, text=text)
        await self._bus.send(message, self._spec.name, to=command.to)

    def _report_text(self, report: Report) -> str:
        if report.state in ANSWERED:
            return self._prompts.managed_report(report.agent, observation_of(report.output))
        return report.error.message if report.error else report.state

    async def _goes_off(self, record_id: str, timer: TimerFired) -> list[Command]:
        while True:
            async with self._cache.locked(timer.tree, timer.run) as held:
                if timer.id in held.run.seen:
                    raise TakenOver
                try:
                    return await self._advance(held, timer, entry_cause=timer.id, record_id=record_id)
                except Fenced:
                    continue

    # --- the model call

    async def _ask(self, record_id: str, tree: str, run_id: str, command: CallModel) -> list[Command]:
        """Makes the call and journals what it came to, unless the run has moved on without it."""
        async with self._cache.locked(tree, run_id) as held:
            if not _is_in_flight(held.run, command):
                return _moved_on(held.run)
            request = held.transcript.request(held.run, command.purpose)
        outcome = await self._calls.make(held.run, command, request)
        if outcome is None:
            log.info("model call of %s dropped: the run is said to have ended", run_id)
            self._cache.forget(held)
            async with self._cache.locked(tree, run_id) as held:
                return _moved_on(held.run)
        while True:
            async with self._cache.locked(tree, run_id) as held:
                if not _is_in_flight(held.run, command):
                    return _moved_on(held.run)
                try:
                    cause = f"{run_id}:model:{command.purpose}:{command.step}:{command.attempt}"
                    return await self._advance(held, outcome, entry_cause=cause, record_id=record_id)
                except Fenced:
                    continue


def _is_in_flight(run: Run, command: CallModel) -> bool:
    model: ModelInFlight | None = run.model
    return (
        model is not None
        and model.attempt == command.attempt
        and model.step == command.step
        and model.purpose == command.purpose
        and model.cause == command.cause
    )


def _is_of(debt: Command, record_id: str) -> bool:
    """Whether the record's worker pays this: what the run owes to the world, or a wait of the record's own."""
    return isinstance(debt, Send | Revoke) or debt.cause in (None, record_id)


def _moved_on(run: Run) -> list[Command]:
    """One that goes on is in another worker's hands. Of one that is over nobody knows whether who ended it has
    lived to pay what it owes, and the record in hand may be the last that could remind of it."""
    if run.phase is Phase.DONE:
        return owed(run)
    raise TakenOver


def _parent(run: Run, what: object) -> str | None:
    task = what.task if isinstance(what, Poisoned) else what
    if isinstance(task, Task):
        return task.reply_to.run if task.reply_to else None
    return run.parent
