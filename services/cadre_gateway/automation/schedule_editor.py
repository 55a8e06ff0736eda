"""What people do with schedules: make, replace, show, pause, resume, run, remove."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from cadre.adapters.nats.automations import NatsAlarms, NatsDefinitions
from cadre.api.automations import ScheduleView, TickView
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import (
    OwedStart,
    ScheduleState,
    TickOutcome,
    changed,
    new_schedule,
    owed_start,
    paused,
    started_by_hand,
    taken_over,
)
from cadre.errors import Fenced, SpecError, UnreadableMessage
from cadre.ports import Clock
from cadre_gateway.access.makers import maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.run_starter import RunStarter, check_start
from cadre_gateway.automation.scheduler import Scheduler, StartRefused
from cadre_gateway.requests.problems import Problem, invalid

_MAX_SHOWN = 1000

_STATUS = {
    "forbidden": 403,
    "out-of-scope": 403,
    "session-busy": 409,
    "run-erased": 410,
    "rate-limited": 429,
    "budget-exhausted": 429,
}
"""The HTTP status of a problem that a tick's outcome names by its code; any other is 422."""


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
        found = [one for one in await self.states.all() if isinstance(one, ScheduleState)]
        return await asyncio.gather(*(self._shown(one, upcoming) for one in found))

    async def show(self, name: str, upcoming: int) -> ScheduleView:
        """One schedule. Raises a 404 problem."""
        return await self._shown((await self._read(name))[0], upcoming)

    async def put(self, caller: Principal, spec: ScheduleSpec, *, only_new: bool = False) -> ScheduleView:
        """Makes the schedule, or replaces its specification; it goes on from now, with the caller's rights. Raises a
        403, 409 or 422 problem."""
        check_start(caller, spec)
        _check_task(spec, self.clock.now())
        while True:
            state, fence = await self._find(spec.name)
            if state is not None and only_new:
                raise Problem(
                    409,
                    "schedule-exists",
                    f"there is a schedule {spec.name!r}: PUT replaces it, DELETE removes it",
                )
            now, maker = self.clock.now(), maker_of(caller)
            if state is None:
                state = new_schedule(spec, now, maker, secrets.token_hex(16))
            else:
                state = taken_over(changed(state, spec, now), maker, now)
            if await self._written(state, fence):
                return await self._go_on(spec.name)

    async def pause(self, name: str) -> ScheduleView:
        """Pauses a schedule. Raises a 404 problem."""
        await self._change(name, lambda state: paused(state, True, self.clock.now()))
        return await self._go_on(name)

    async def resume(self, caller: Principal, name: str) -> ScheduleView:
        """Resumes a schedule; one whose maker may not start its runs any more goes on with the caller's rights. Raises
        a 403 or 404 problem."""
        found, _ = await self._read(name)
        maker = found.maker
        try:
            await self.runs.check(found.spec, maker)
        except StartRefused:
            check_start(caller, found.spec)
            maker = maker_of(caller)

        def resumed(state: ScheduleState) -> ScheduleState:
            own = maker if state.maker == found.maker else state.maker
            return paused(msgspec.structs.replace(state, maker=own), False, self.clock.now())

        await self._change(name, resumed)
        return await self._go_on(name)

    async def run(self, caller: Principal, name: str, key: str | None) -> str:
        """Starts a run of the schedule with the caller's rights at once, whatever its overlap policy, and returns its
        id; the same `key` of the same caller starts one. Raises a problem when it cannot be started."""
        found, _ = await self._read(name)
        check_start(caller, found.spec)
        key = f"{caller.owner}\n{key or secrets.token_hex(16)}"
        run = await self.runs.run_of(self._start(caller, found, 0, key))
        if not await self.runs.is_known(run):
            await self._change(
                name,
                lambda state: started_by_hand(
                    state,
                    msgspec.structs.replace(self._start(caller, state, state.ticks, key), run=run),
                    self.clock.now(),
                ),
            )
            await self._go_on(name)
            await self._check_started(name, run)
        return run

    async def remove(self, name: str) -> None:
        """Removes a schedule; its runs go on. Raises a 404 problem."""
        if not await self.states.remove(name):
            raise _unknown(name)
        await self.alarms.clear(name)

    async def _shown(self, state: ScheduleState, upcoming: int) -> ScheduleView:
        """Return the schedule as the API shows it. A maker's loss shows before the schedule's next tick comes."""
        refusal = await self.scheduler.refusal(state)
        if refusal is not None:
            state = paused(state, True, self.clock.now(), refusal.code)
        # In a thread: the next thousand ticks of a rare cron expression take half a second to find.
        return await asyncio.to_thread(schedule_view, state, upcoming)

    def _start(self, caller: Principal, state: ScheduleState, number: int, key: str) -> OwedStart:
        try:
            return owed_start(state, self.clock.now(), number, key, maker_of(caller))
        except SpecError as error:
            raise invalid(str(error)) from error

    async def _check_started(self, name: str, run: str) -> None:
        """Raises a problem when the run, which was decided, could not be started."""
        state, _ = await self._read(name)
        refused = next((one for one in state.outcomes if one.run == run and one.outcome == "failed"), None)
        if refused is not None:
            raise Problem(_STATUS.get(refused.code, 422), refused.code, refused.detail)

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
        paused_for=state.paused_for,
        maker=state.maker.name,
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
        owed_start(new_schedule(spec, now), now, 1)
    except SpecError as error:
        raise invalid(str(error)) from error


def _unknown(name: str) -> Problem:
    return Problem(404, "unknown-schedule", f"there is no schedule {name!r}: GET /v1/schedules lists them")
