"""What people do with schedules: make, replace, show, pause, resume, run, remove."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from cadre.adapters.nats.automations import NatsAlarms, NatsDefinitions
from cadre.api.automations import ScheduleView, TickView
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import (
    ScheduleState,
    TickOutcome,
    changed,
    manual_key,
    new_schedule,
    owed_start,
    paused,
    started_by_hand,
)
from cadre.errors import Fenced, SpecError, UnreadableMessage
from cadre.ports import Clock
from cadre_gateway.automation.run_starter import RunStarter, submission_of
from cadre_gateway.automation.scheduler import Scheduler
from cadre_gateway.requests.problems import Problem, invalid

_MAX_SHOWN = 1000


@dataclass(frozen=True)
class ScheduleEditor:
    """Changes schedules; every method raises RetryableError, and a problem for a request that cannot be met."""

    states: NatsDefinitions[ScheduleState]
    alarms: NatsAlarms
    scheduler: Scheduler
    runs: RunStarter
    clock: Clock

    async def list(self, upcoming: int) -> list[ScheduleView]:
        """All schedules by name, each with so many next ticks; without those that only a newer gateway can read."""
        found = await self.states.all()
        return [schedule_view(one, upcoming) for one in found if isinstance(one, ScheduleState)]

    async def show(self, name: str, upcoming: int) -> ScheduleView:
        """One schedule. Raises a 404 problem."""
        return schedule_view((await self._read(name))[0], upcoming)

    async def put(self, spec: ScheduleSpec, *, only_new: bool = False) -> ScheduleView:
        """Makes the schedule, or replaces its specification; it goes on from now. Raises a 409 or 422 problem."""
        submission_of(spec.agent, "as of its first tick", spec.options)
        _check_task(spec, self.clock.now())
        while True:
            state, fence = await self._find(spec.name)
            if state is not None and only_new:
                raise Problem(
                    409,
                    "schedule-exists",
                    f"there is a schedule {spec.name!r}: PUT replaces it, DELETE removes it",
                )
            now = self.clock.now()
            state = new_schedule(spec, now) if state is None else changed(state, spec, now)
            if await self._written(state, fence):
                return await self._go_on(spec.name)

    async def pause(self, name: str, pause: bool) -> ScheduleView:
        """Pauses or resumes a schedule. Raises a 404 problem."""
        await self._change(name, lambda state: paused(state, pause, self.clock.now()))
        return await self._go_on(name)

    async def run(self, name: str, key: str | None) -> str:
        """Starts a run of the schedule at once, whatever its overlap policy, and returns its id; the same `key` starts
        one. Raises a 404 or 422 problem."""
        key = manual_key(name, key or secrets.token_hex(16))
        state = await self._change(name, lambda state: self._started(state, key))
        await self._go_on(name)
        assert state.last_run is not None
        return state.last_run

    async def remove(self, name: str) -> None:
        """Removes a schedule; its runs go on. Raises a 404 problem."""
        if not await self.states.remove(name):
            raise _unknown(name)
        await self.alarms.clear(name)

    def _started(self, state: ScheduleState, key: str) -> ScheduleState:
        try:
            start = owed_start(state.spec, self.clock.now(), state.ticks, key)
        except SpecError as error:
            raise invalid(str(error)) from error
        return started_by_hand(state, start, self.clock.now())

    async def _change(self, name: str, change: Callable[[ScheduleState], ScheduleState]) -> ScheduleState:
        while True:
            state, fence = await self._read(name)
            state = change(state)
            if await self._written(state, fence):
                return state

    async def _go_on(self, name: str) -> ScheduleView:
        await self.scheduler.handle(name)
        return await self.show(name, 1)

    async def _read(self, name: str) -> tuple[ScheduleState, int]:
        state, fence = await self._find(name)
        if state is None:
            raise _unknown(name)
        return state, fence

    async def _find(self, name: str) -> tuple[ScheduleState | None, int]:
        try:
            return await self.states.read(name)
        except UnreadableMessage as error:
            raise Problem(
                409, "newer-version", f"schedule {name!r} is of a newer gateway: {error}"
            ) from error

    async def _written(self, state: ScheduleState, fence: int) -> bool:
        try:
            await self.states.write(state.spec.name, state, fence)
        except Fenced:
            return False
        return True


def schedule_view(state: ScheduleState, upcoming: int) -> ScheduleView:
    """The schedule as the API shows it, with at most so many next ticks."""
    spec = msgspec.to_builtins(state.spec)
    del spec["name"]
    owed = {start.run for start in state.starts}
    return ScheduleView(
        name=state.spec.name,
        agent=state.spec.agent,
        paused=state.paused,
        next=state.upcoming(min(upcoming, _MAX_SHOWN)),
        ticks=state.ticks,
        started=state.started,
        skipped=state.skipped,
        missed=state.missed,
        queued=len(state.queued),
        last_run=state.last_run,
        made_at=state.made_at,
        spec=spec,
        outcomes=[_tick_view(one, one.run in owed) for one in reversed(state.outcomes)],
    )


def _tick_view(tick: TickOutcome, is_owed: bool) -> TickView:
    shown = TickView(**msgspec.structs.asdict(tick))
    return msgspec.structs.replace(shown, outcome="starting") if is_owed else shown


def _check_task(spec: ScheduleSpec, now: float) -> None:
    """Raises a 422 problem when the task of a tick cannot be rendered."""
    try:
        owed_start(spec, now, 1, "")
    except SpecError as error:
        raise invalid(str(error)) from error


def _unknown(name: str) -> Problem:
    return Problem(404, "unknown-schedule", f"there is no schedule {name!r}: GET /v1/schedules lists them")
