"""Journal what arrives: load the run, decide, append one entry under the fence, and say what the run owes behind it.

Calls that rules count over a tree or a user's day are reserved before the journal says that they are made.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cadre.engine.chat import base_tokens
from cadre.engine.commands import CallModel, Command, Revoke, Send
from cadre.engine.kind import to_begin
from cadre.engine.policies.tally import day_of, line_of, others_in, reserved, settled, spans_of
from cadre.engine.timers import ended, running
from cadre.errors import Fenced
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned, Toolset
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted, RunFinished
from cadre.journal.run import Phase, Run, Step
from cadre.loop.arrival_of import entry_of
from cadre.loop.decide import decide
from cadre.loop.fork import ForkError, prefix_of
from cadre.loop.owed import is_at_work, owed
from cadre.ports import Bus, Clock, Journal, Model, Tallies
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Cancel, Record, Task, TimerFired, UserMessage
from cadre.protocol.policy import Span, TalliedCalls, Tally
from cadre.runtime.model_calls import attempt_id
from cadre.runtime.revision_queue import RevisionQueue
from cadre.runtime.run_cache import AnswerWait, CachedRun, PinnedPrompts, RunCache, read_run
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import facts_of
from cadre.telemetry.logs import fields_of_run
from cadre.telemetry.metrics.journal_metrics import EntryMetrics
from cadre.telemetry.metrics.meters import Meters
from cadre.telemetry.metrics.names import AGENT, FENCE_LOSSES
from cadre.telemetry.tracing.ids import trace_id

log = logging.getLogger("cadre.runner")

NO_TOOLSET = Toolset()


class World(NamedTuple):
    """Everything outside the process that a run can reach."""

    journal: Journal
    bus: Bus
    model: Model
    clock: Clock
    tallies: Tallies
    worker: str = ""
    """The name of this replica."""


class TakenOver(Exception):
    """Another worker goes on with the record in hand: this one must not ack it."""


What = Record | ModelReplied | ModelFailed | ModelLost | Poisoned
"""The input of a journal entry."""


class NewEntry(NamedTuple):
    """The input and cause of an entry to append."""

    what: What
    cause: str
    """The entry's `cause`."""


Decide = Callable[[CachedRun], NewEntry | list[Command]]
"""Returns the entry to append to a run in this state, or else the commands to carry out. May raise TakenOver."""


class Journaling:
    """Takes the runs of one agent forward in their journals; the caller pays what they owe then."""

    def __init__(
        self,
        spec: AgentSpec,
        prompts: PinnedPrompts,
        world: World,
        toolset: Callable[[], Toolset],
        interrupt: Callable[[str], None],
    ) -> None:
        """`interrupt` drops the model call of a run, or one model call, that this process makes."""
        self._spec = spec
        self._prompts = prompts
        self._journal, self._bus, self._clock = world.journal, world.bus, world.clock
        self._sums = SharedSums(world.tallies)
        self._toolset = toolset
        self._interrupt = interrupt
        self.cache = RunCache(self._journal, prompts, self._clock)
        self._bases = MeasuredBases()
        self.meters = Meters(on=False)
        self.revision = ""
        """Of the spec and the prompts: the runs that begin here are said to have it."""
        self.revisions = RevisionQueue()

    async def account(self, record: Record, deliveries: int, seq: int, slot: int) -> list[Command]:
        """Journal the record unless it is journaled already; return what is to be paid now."""

        def decide(cached: CachedRun) -> NewEntry | list[Command]:
            self.revisions.check(cached.run, record, slot, deliveries)
            if record.id not in cached.run.seen:
                return NewEntry(record, cause=record.id)
            if seq > cached.accounted_at(record.id):
                return []  # published again after it was accounted for: the first one sees to the rest
            return self.take_over(cached.run, record.id, deliveries)

        # A first delivery of a task most likely begins its run: no need to look, the fence will tell.
        fresh = isinstance(record, Task) and deliveries == 1
        return await self.add_entry(record.id, record.tree, record.run, decide, fresh=fresh)

    def take_over(self, run: Run, record_id: str, deliveries: int) -> NewEntry | list[Command]:
        """The record's former worker may have died before it paid; its model call died with it."""
        model = run.model
        if model is None or model.cause != record_id:
            # Calls and waits of other records are not this one's: it may be acked, and could not keep them alive.
            return self.left_owed(run, record_id)
        if deliveries == 1:
            # The server forgets a delivery that it is killed right after, so the call may be in good hands.
            # Un-acked, the record comes again as soon as they give no sign of life.
            raise TakenOver
        cause = f"{record_id}:lost:{model.purpose}:{model.step}:{model.attempt}"
        return NewEntry(ModelLost(attempt=model.attempt), cause)

    def left_owed(self, run: Run, record_id: str) -> list[Command]:
        """Return all commands that the run owes and that the worker of this record carries out."""
        return [command for command in owed(run) if _is_of(command, record_id)]

    async def add_entry(
        self, record_id: str, tree: str, run: str, decide: Decide, *, fresh: bool = False
    ) -> list[Command]:
        """Append what `decide` wants, decided again for as long as others are first; return what is to be paid.

        `decide` is given the run's state while nothing else in this process can change it. `fresh` takes the run
        for new without looking. Raises TakenOver, RetryableError.
        """
        while True:
            async with self.cache.locked(tree, run, fresh=fresh) as cached:
                decided = decide(cached)
                if not isinstance(decided, NewEntry):
                    # The worker that accounted for the record may have died before it was counted.
                    await self._sums.settle(cached.run, self._clock.now())
                    return decided
                try:
                    return await self._append(cached, decided, record_id)
                except Fenced:
                    fresh = False

    async def poison(self, what: Poisoned, tree: str, run: str) -> list[Command]:
        """End the run whose record no worker survives; return what is to be paid now."""
        if not await self._is_ended_by(what.id, tree, run):
            # Somebody else may be handling the record now, and ack it: what the end owes must not hang on it.
            await self._bus.send(self._reminder(what, tree, run), self._spec.name, to=self._spec.name)

        def decide(cached: CachedRun) -> NewEntry | list[Command]:
            known = what.id in cached.run.seen
            if known and cached.run.phase is Phase.DONE:
                return owed(cached.run)
            # What kills its workers may well be what follows from the record, once it is journaled.
            return NewEntry(what, cause=f"{what.id}:poisoned" if known else what.id)

        return await self.add_entry(what.id, tree, run, decide)

    async def _is_ended_by(self, record_id: str, tree: str, run: str) -> bool:
        async with self.cache.locked(tree, run) as cached:
            return record_id in cached.run.seen and cached.run.phase is Phase.DONE

    def _reminder(self, what: Poisoned, tree: str, run: str) -> Cancel:
        at, why = self._clock.now(), what.why or "its record could not be handled"
        return Cancel(id=f"{what.id}:condemned", tree=tree, run=run, at=at, reason=why, sender=self._spec.name)

    async def _append(self, cached: CachedRun, new: NewEntry, record_id: str) -> list[Command]:
        """Append one entry, under the lock of the run. Raises Fenced, with the stale state forgotten."""
        run, what = cached.run, new.what
        arrival = await self._arrival(cached, what, record_id)
        sums = await self._sums.of(run, arrival)
        arrival = msgspec.structs.replace(arrival, others=sums.others(run.id)) if sums.spans else arrival
        measured = EntryMetrics(run, what, arrival.at) if self.meters.on else None
        was_over, at_work, in_flight, timers = (
            run.phase is Phase.DONE,
            is_at_work(run),
            run.model,
            running(run),
        )
        try:
            events = decide(run, arrival, new.cause, measured)
            entry = entry_of(run, arrival, events, new.cause, cached.pointers.packed())
            await sums.reserve(run)
            gone = what.name if type(what) is TimerFired else None
            commands = await self._write(cached, entry, what, record_id, was_over, ended(timers, run, gone))
        except BaseException as error:
            if isinstance(error, Fenced):
                self.meters.record(FENCE_LOSSES, 1, {AGENT: self._spec.name})
            # Half decided, fenced, or unknown: the next one folds again.
            self.cache.invalidate(cached)
            raise
        if sums.are_other_than(run):
            await self._sums.settle(run, arrival.at)
        log_entry(entry)
        if measured is not None:
            self.meters.record_all(measured.found)
        if run.phase is Phase.DONE:
            self.cache.forget(cached)
            if (at_work and not isinstance(what, ModelReplied | ModelFailed)) or _has_process(run):
                self._interrupt(run.id)
                await self._bus.interrupt(run.tree, run.id)
        if type(what) is UserMessage and in_flight is not None and run.model is not in_flight:
            needless = attempt_id(run.id, in_flight)
            self._interrupt(needless)
            await self._bus.interrupt(run.tree, needless)
        return commands

    async def _write(
        self,
        cached: CachedRun,
        entry: Entry,
        what: What,
        record_id: str,
        was_over: bool,
        ends_timer: str | None,
    ) -> list[Command]:
        """Store the entry; returns what is to be paid now.

        What the run owes behind the entry is worked out while it is on its way, and counts once it has arrived.
        """
        run, commands = cached.run, list[Command]()

        def go_on() -> None:
            if type(what) is ModelLost:
                commands[:] = self.left_owed(run, record_id)
            else:
                # The worker that ended the run may have died before it paid; a record that comes later reminds of it.
                commands[:] = owed(run) if was_over else owed(run, since=entry.n)
            if any(type(command) is CallModel for command in commands):
                cached.transcript.catch_up(run)

        with AnswerWait(self._clock) as answer:
            appended = await self._journal.append(
                entry, cached.seq, before=cached.hash, ends_timer=ends_timer, meanwhile=go_on
            )
        cached.appended(appended, entry.cause, answer.as_of)
        return commands

    async def _arrival(self, cached: CachedRun, what: What, record_id: str) -> Arrival:
        """With all that the decision may know, the memory of the run that a task goes on from included."""
        run = cached.run
        at = self._clock.now()
        toolset = self._toolset()
        asked = what if type(what) is Task else None
        task = asked or run.task
        if task is not None and task.has_files:
            toolset = toolset.with_files or toolset
        history: list[Step] = []
        prefix: list[Step] = []
        problem = ""
        if asked is not None and run.phase is Phase.NEW:
            if asked.continues:
                history = (await read_run(self._journal, asked.continues)).steps
            if asked.forks is not None:
                try:
                    history, prefix = prefix_of(await read_run(self._journal, asked.forks.run), asked.forks)
                except ForkError as error:
                    problem = str(error)
        return Arrival(
            what=what,
            at=at,
            cause=record_id,
            toolset=toolset,
            spec=self._spec,
            history=history,
            prefix=prefix,
            problem=problem,
            revision=self.revision,
            prompts=self._prompts.ref,
            base=self._base_of(cached, NO_TOOLSET) if asked is not None else 0,
            base_with_toolset=self._base_of(cached, toolset),
        )

    def _base_of(self, cached: CachedRun, toolset: Toolset) -> int:
        revision = cached.run.revision or self.revision
        spec = self._spec if revision == self.revision else cached.run.spec
        return self._bases.tokens(spec, cached.prompts, revision, toolset)


def _has_process(run: Run) -> bool:
    """Return whether a process may be kept for the run, regardless of what the run waits for."""
    return run.spec is not None and facts_of(run.spec, run.decided_by).serves_pools


def _is_of(command: Command, record_id: str) -> bool:
    """Return whether the record's worker carries out the command: one owed to the world, or a wait of the record."""
    return isinstance(command, Send | Revoke) or command.cause in (None, record_id)


_KEPT = 4


class _Base(NamedTuple):
    toolset: Toolset
    prompts: Prompts
    revision: str
    tokens: int


class MeasuredBases:
    """Measures again only when the toolset changes, or for a run that began with another revision."""

    def __init__(self) -> None:
        self._bases: list[_Base] = []

    def tokens(self, spec: AgentSpec | None, prompts: Prompts, revision: str, toolset: Toolset) -> int:
        """Return the tokens of a request of runs of this revision, which has this spec and these prompts, without their
        steps."""
        for known in self._bases:
            if known.toolset is toolset and known.prompts is prompts and known.revision == revision:
                return known.tokens
        run = to_begin(spec) if spec is not None else Run(id="", tree="")
        run.tools, run.members, run.missing = toolset.tools, toolset.members, toolset.missing
        tokens = base_tokens(run, prompts)
        self._bases = [_Base(toolset, prompts, revision, tokens), *self._bases[: _KEPT - 1]]
        return tokens


run_log = logging.getLogger("cadre.run")


def log_entry(entry: Entry) -> None:
    """Log what the entry, which is stored, says of the run's beginning and end."""
    first, last = entry.events[0], entry.events[-1]
    if type(first) is RunAccepted:
        _log_run(entry, "begins")
    if type(last) is RunFinished:
        _log_run(entry, f"ends: {last.state}" + (f" ({last.error.type})" if last.error is not None else ""))


def _log_run(entry: Entry, what: str) -> None:
    fields = {"fields": fields_of_run(entry.tree, entry.run)}
    run_log.info("run %s of %s %s, trace %s", entry.run, entry.agent, what, trace_id(entry.tree), extra=fields)


class _Place(NamedTuple):
    tree: str
    name: str


class _StoredTally(NamedTuple):
    place: _Place
    tally: Tally | None
    fence: int


class KnownSums:
    """The tallies of a run as they were read for one decision."""

    def __init__(self, tallies: Tallies, spans: dict[Span, _StoredTally], calls: frozenset[Any], at: float) -> None:
        self._tallies, self.spans, self._calls, self._at = tallies, spans, calls, at

    def others(self, run: str) -> dict[Span, list[TalliedCalls]]:
        """Return the calls of other runs."""
        return {span: others_in(stored.tally, run) for span, stored in self.spans.items()}

    async def reserve(self, run: Run) -> None:
        """Count the calls that the decision has made, before it is journaled. Raises Fenced where others have been
        counted since, RetryableError."""
        if not self.spans or _calls_of(run) <= self._calls:
            return
        for span, stored in self.spans.items():
            tally = reserved(stored.tally, run.id, line_of(run, span, self._at))
            await self._tallies.write(*stored.place, tally, stored.fence)
            self.spans[span] = stored._replace(tally=tally)

    def are_other_than(self, run: Run) -> bool:
        """Return whether a tally says something else than the run's journal, once that holds the decision."""
        return any(
            settled(stored.tally, run.id, line_of(run, span, self._at)) is not None
            for span, stored in self.spans.items()
        )


class SharedSums:
    """Reads and settles the tallies of runs."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies

    async def of(self, run: Run, arrival: Arrival) -> KnownSums:
        """Return the tallies by which the rules of a run decide. Raises BusUnavailable."""
        stored = {span: await self._read(place) for span, place in _places(run, arrival.at, arrival).items()}
        return KnownSums(self._tallies, stored, _calls_of(run), arrival.at)

    async def settle(self, run: Run, at: float) -> None:
        """Have the tallies say what counts by the run's journal. Raises RetryableError."""
        for span, place in _places(run, at).items():
            while True:
                stored = await self._read(place)
                tally = settled(stored.tally, run.id, line_of(run, span, at))
                if tally is None:
                    break
                try:
                    await self._tallies.write(*place, tally, stored.fence)
                except Fenced:
                    continue
                break

    async def _read(self, place: _Place) -> _StoredTally:
        return _StoredTally(place, *await self._tallies.read(*place))


def _places(run: Run, at: float, arrival: Arrival | None = None) -> dict[Span, _Place]:
    """Return where the tallies are that the rules of a run ask for; `arrival` may be the task of a run that begins."""
    task, policies = run.task, []
    if task is None and arrival is not None and isinstance(arrival.what, Task):
        task = arrival.what
        policies = [arrival.spec.policies, *(task.standing.policies if task.standing is not None else ())]
    if task is None:
        return {}
    found: dict[Span, _Place] = {}
    for span in spans_of(run, policies):
        if span == "tree":
            found[span] = _Place(run.tree, "tree")
        else:
            user = task.origin.user if task.origin is not None else None
            digest = hashlib.sha256((user or "").encode()).hexdigest()[:32]
            found[span] = _Place(f"_day{digest}", f"day{day_of(at)}")
    return found


def _calls_of(run: Run) -> frozenset[Any]:
    return frozenset(run.facts.calls.items()) if run.facts is not None else frozenset()
