"""Handle the schedules that are due: decide, write the decision down, start the runs of schedules and triggers, set
the next alarm."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from cadre.api.runs import RunSummary
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import (
    OwedStart,
    ScheduleState,
    begun_as,
    paused,
    refused,
    settled,
    tried_again,
)
from cadre.automation.trigger import TriggerSpec
from cadre.errors import BusFull, Fenced, RetryableError, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.access import Maker
from cadre.protocol.policy import Standing
from cadre_gateway.access.makers import MakerGone, Makers
from cadre_gateway.access.principal import Principal
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem
from cadre_gateway.starting.admission import KeyedRuns
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.run_end import RunEnd

log = logging.getLogger("cadre.schedules")

_LOOK_SECONDS = 60.0
"""Seconds between two looks at all schedules, for those whose alarm was never set or is lost."""

_LATE_SECONDS = 15.0
"""An alarm that is late by so much is taken for lost."""


class StartRefused(Exception):
    """The run of a tick cannot be started, and trying again would not help; the text says why."""

    def __init__(self, why: str, code: str) -> None:
        super().__init__(why)
        self.code = code
        """That of a problem, or of a MakerLoss."""


class ScheduleStates(Protocol):
    """The schedules: see NatsDefinitions."""

    async def read(self, name: str) -> tuple[ScheduleState | None, int]: ...
    async def write(self, name: str, value: ScheduleState, fence: int) -> int: ...
    async def all(self) -> list[ScheduleState | UnreadableMessage]: ...


class Alarms(Protocol):
    """Alarms of schedules: see NatsAlarms."""

    async def set(self, schedule: str, due: float) -> None: ...
    async def wake(self, schedule: str, tick: float) -> None: ...
    async def give_up(self, schedule: str, tick: float, why: str) -> None: ...


class Decisions(Protocol):
    """Decides as `schedule_state.decide` does: see Evaluator. Raises EvaluationEnded."""

    async def decide(self, state: ScheduleState, now: float, busy: bool, giving_up: str = "") -> ScheduleState: ...


class ScheduledRuns(Protocol):
    """The runs that schedules start. Every method raises RetryableError."""

    async def start(self, start: OwedStart, options: dict[str, Any], maker: Maker) -> str:
        """Start the run with the rights of its starter, else its maker, unless it is started, and return its id: which
        shards it begins in is decided only then. Raises StartRefused."""
        ...

    async def check(self, spec: ScheduleSpec, maker: Maker) -> None:
        """Raise StartRefused when the maker may not start such runs at present."""
        ...

    async def is_active(self, run: str) -> bool:
        """Return whether the run is started and has not ended."""
        ...

    async def cancel(self, run: str, reason: str) -> None:
        """Ask the run to end, unless it has ended or is gone."""
        ...


@dataclass(frozen=True)
class Scheduler:
    """Takes schedules forward."""

    states: ScheduleStates
    alarms: Alarms
    runs: ScheduledRuns
    clock: Clock
    decisions: Decisions

    async def handle(self, name: str, giving_up: str = "") -> None:
        """Do all that is due for the schedule at this moment, and sets its next alarm. With `giving_up` the ticks
        that are due fail for that reason, and become dead letters.

        Raises RetryableError, UnreadableMessage, EvaluationEnded: then it is to be handled again, here or elsewhere.
        """
        while True:
            state, fence = await self.states.read(name)
            if state is None:
                return
            try:
                if state.is_owed:
                    await self.states.write(name, settled(await self._carry_out(state)), fence)
                    continue
                now = self.clock.now()
                if (refusal := await self.refusal(state)) is not None:
                    log.warning("schedule %s pauses: %s", name, refusal)
                    await self.states.write(name, paused(state, True, now, refusal.code), fence)
                    continue
                busy = state.last_run is not None and await self.runs.is_active(state.last_run)
                if not state.is_due(now, busy):
                    break
                decided = await self.decisions.decide(state, now, busy, giving_up)
                if decided == state:
                    break
                giving_up = ""
                _log_losses(state, decided)
                await self.states.write(name, decided, fence)
            except Fenced:
                continue
        if (wake := state.wake_at(now)) is not None:
            await self.alarms.set(name, wake)

    async def refusal(self, state: ScheduleState) -> StartRefused | None:
        """Return the reason why an active schedule has to pause; None without a reason. Raises RetryableError."""
        if state.due_at() is None and (state.paused or not state.queued):
            return None
        try:
            await self.runs.check(state.spec, state.maker)
        except StartRefused as refusal:
            return refusal
        return None

    async def try_again(self, name: str, tick: float) -> bool:
        """Make a failed tick start its run once the schedule's last one has ended; return False when the tick did not
        fail, or nothing is known of it any more. Raises as `handle` does."""
        while True:
            state, fence = await self.states.read(name)
            changed = None if state is None else tried_again(state, tick)
            if changed is None:
                return False
            try:
                await self.states.write(name, changed, fence)
            except Fenced:
                continue
            await self.handle(name)
            return True

    async def look_after(self) -> None:
        """Look at all schedules now and then, for ever: what is due and unheard of is late, and not lost."""
        while True:
            try:
                await self.handle_overdue()
            except RetryableError as error:
                log.warning("schedules: %s", error)
            await self.clock.sleep(_LOOK_SECONDS)

    async def handle_overdue(self) -> None:
        """Wake each schedule whose alarm should have gone off, or whose maker may start no runs any more. The queue
        handles it: it counts the gateways that die of that. Raises RetryableError."""
        for state in await self.states.all():
            if isinstance(state, UnreadableMessage):
                log.warning("a schedule is left to a newer gateway: %s", state)
                continue
            late = self.clock.now() - _LATE_SECONDS
            due = state.due_at()
            is_late = state.is_owed or state.queued or (due is not None and due < late)
            if is_late or await self.refusal(state) is not None:
                await self.alarms.wake(state.spec.name, state.next_at or 0.0)

    async def _carry_out(self, state: ScheduleState) -> ScheduleState:
        await asyncio.gather(
            *(self.runs.cancel(run, f"schedule {state.spec.name}: the next tick came") for run in state.cancels)
        )
        for tick in state.given_up:
            why = next((one.detail for one in state.outcomes if one.tick == tick), "")
            await self.alarms.give_up(state.spec.name, tick, why)
        for start in state.starts:
            try:
                state = begun_as(state, start, await self.runs.start(start, state.spec.start_options, state.maker))
            except StartRefused as refusal:
                log.warning("schedule %s: run %s not started: %s", state.spec.name, start.run, refusal)
                state = refused(state, start, str(refusal), refusal.code)
        return state


def _log_losses(before: ScheduleState, after: ScheduleState) -> None:
    if after.missed > before.missed:
        log.warning(
            "schedule %s: %d ticks came too late and are not made up for",
            after.spec.name,
            after.missed - before.missed,
        )


_FULL = "capacity"
_NOT_FOUND = 404


@dataclass(frozen=True)
class RunStarter:
    """The runs that no request waits for. Each is started with the rights that its author has at that moment: the
    author of the schedule or the trigger, or the person who starts it by hand."""

    submitter: Submitter
    keyed: KeyedRuns
    lookup: RunLookup
    run_end: RunEnd
    makers: Makers

    async def start(
        self, start: OwedStart, options: dict[str, Any], maker: Maker, standing: Standing | None = None
    ) -> str:
        """Start the run unless it is started, and return its id; its agent need not be there. `standing` is passed to
        Submitter.submit. Raises StartRefused, RetryableError."""
        caller = await self._caller(start.starter or maker)
        try:
            wanted = submission_of(start.agent, start.task, options)
            # Without a digest: what the key has started counts, also when the template has changed since.
            begun = await self.submitter.submit(
                caller,
                wanted,
                IdempotencyKey(start.owner, start.key),
                None,
                needs_agent=False,
                standing=standing,
            )
        except Problem as problem:
            if problem.code == _FULL:
                raise BusFull(f"run {start.run}", problem.detail) from problem
            raise StartRefused(problem.detail, problem.code) from problem
        return begun.id

    async def run_of(self, start: OwedStart) -> str:
        """Return the id of the run that it starts, or has started. Raises RetryableError."""
        return await self.keyed.run_of(IdempotencyKey(start.owner, start.key), start.agent)

    async def check(self, spec: ScheduleSpec | TriggerSpec, maker: Maker) -> None:
        """Raise StartRefused when the maker may not start such runs at present, RetryableError."""
        caller = await self._caller(maker)
        try:
            check_start(caller, spec)
        except Problem as problem:
            raise StartRefused(problem.detail, "maker-forbidden") from problem

    async def is_known(self, run: str) -> bool:
        """Return whether the run was started, if it has not been erased since. Raises RetryableError."""
        return await self._find(run) is not None

    async def is_active(self, run: str) -> bool:
        """Return whether the run is started and has not ended. Raises BusUnavailable."""
        found = await self._find(run)
        return found is not None and not found.finished

    async def _caller(self, maker: Maker) -> Principal:
        try:
            return await self.makers.caller(maker)
        except MakerGone as gone:
            raise StartRefused(str(gone), gone.code) from gone

    async def _find(self, run: str) -> RunSummary | None:
        try:
            return await self.lookup.find(run)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            return None

    async def cancel(self, run: str, reason: str) -> None:
        """Ask the run to end, unless it has ended or is gone. Raises RetryableError."""
        try:
            await self.run_end.cancel(run, reason)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise


def check_start(caller: Principal, spec: ScheduleSpec | TriggerSpec) -> None:
    """Raise a 403 or 422 problem unless the caller may start runs with these options."""
    caller.submission(submission_of(spec.agent, "as of its first start", spec.start_options))


def submission_of(agent: str, task: str, options: dict[str, Any]) -> body.Submission:
    """Return a request for a run with these options. Raises a 422 problem that names what is wrong in them."""
    return body.submission(msgspec.json.encode({**options, "agent": agent, "task": task}))
