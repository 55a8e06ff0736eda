"""Handles the schedules that are due: decides, writes the decision down, carries it out, sets the next alarm.

Any number of gateways do so side by side. The fence of the state lets one decision win, and what is decided may be
carried out by several: a run's id follows from schedule and tick, so it is started once.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Protocol

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
from cadre.errors import Fenced, RetryableError, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.access import Maker

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

    async def decide(
        self, state: ScheduleState, now: float, busy: bool, giving_up: str = ""
    ) -> ScheduleState: ...


class ScheduledRuns(Protocol):
    """The runs that schedules start. Every method raises RetryableError."""

    async def start(self, start: OwedStart, options: dict[str, Any], maker: Maker) -> str:
        """Start the run with the rights of its starter, else its maker, unless it is started, and return its id: which
        shards it begins in is decided only then. Raises StartRefused."""
        ...

    async def check(self, spec: ScheduleSpec, maker: Maker) -> None:
        """Raises StartRefused when the maker may not start such runs at present."""
        ...

    async def is_active(self, run: str) -> bool:
        """Whether the run is started and has not ended."""
        ...

    async def cancel(self, run: str, reason: str) -> None:
        """Asks the run to end, unless it has ended or is gone."""
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
        """Does all that is due for the schedule at this moment, and sets its next alarm. With `giving_up` the ticks
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
        """Return why a schedule has to pause that goes on, None when nothing is against it. Raises RetryableError."""
        if state.due_at() is None and (state.paused or not state.queued):
            return None
        try:
            await self.runs.check(state.spec, state.maker)
        except StartRefused as refusal:
            return refusal
        return None

    async def try_again(self, name: str, tick: float) -> bool:
        """Have a tick that failed start its run once the schedule's last one has ended; return False when the tick did
        not fail, or nothing is known of it any more. Raises as `handle` does."""
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
        """Looks at all schedules now and then, for ever: what is due and unheard of is late, and not lost."""
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
            *(
                self.runs.cancel(run, f"schedule {state.spec.name}: the next tick came")
                for run in state.cancels
            )
        )
        for tick in state.given_up:
            why = next((one.detail for one in state.outcomes if one.tick == tick), "")
            await self.alarms.give_up(state.spec.name, tick, why)
        for start in state.starts:
            try:
                state = begun_as(state, start, await self.runs.start(start, state.spec.options, state.maker))
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
