"""Change schedules and standing budgets for people; pause, resume and run schedules; the state of budgets that
notices read."""

import asyncio
import logging
import secrets
from dataclasses import dataclass

import msgspec

from cadre.adapters.nats.automations import NatsAlarms, NatsDefinitions
from cadre.api.automations import BudgetView, ScheduleView, TickView
from cadre.automation.automation_file import BUDGET, SCHEDULE
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
from cadre.automation.standing_budget import BudgetSpec, BudgetState, budget_happenings
from cadre.errors import Fenced, RetryableError, SpecError, UnreadableMessage
from cadre.ports import Clock
from cadre_gateway.access.makers import maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.notices import Notices
from cadre_gateway.automation.resource import Resource
from cadre_gateway.automation.scheduler import RunStarter, Scheduler, StartRefused, check_start
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.starting.admission import BudgetMeter, StandingBudgets

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
class ScheduleEditor(Resource[ScheduleSpec, ScheduleState, ScheduleView]):
    """Schedules, which are also paused, resumed and run."""

    states: NatsDefinitions[ScheduleState]
    alarms: NatsAlarms
    scheduler: Scheduler
    runs: RunStarter
    clock: Clock
    definition = SCHEDULE
    view = ScheduleView

    def stored(self, spec: ScheduleSpec, before: ScheduleState | None, caller: Principal) -> ScheduleState:
        """Return the schedule, which goes on from now, with the caller's rights. Raises a 403 or 422 problem."""
        check_start(caller, spec)
        now, maker = self.clock.now(), maker_of(caller)
        _check_task(spec, now)
        if before is None:
            return new_schedule(spec, now, maker, secrets.token_hex(16))
        return taken_over(changed(before, spec, now), maker, now)

    async def shown(self, state: ScheduleState, upcoming: int) -> ScheduleView:
        """Return the schedule as the API shows it. A maker's loss shows before the schedule's next tick comes."""
        refusal = await self.scheduler.refusal(state)
        if refusal is not None:
            state = paused(state, True, self.clock.now(), refusal.code)
        # In a thread: the next thousand ticks of a rare cron expression take half a second to find.
        return await asyncio.to_thread(schedule_view, state, upcoming)

    async def changed(self, name: str) -> None:
        """Do what is due for the schedule at this moment, and set its next alarm."""
        await self.scheduler.handle(name)

    async def remove(self, name: str) -> None:
        """Remove a schedule, and its alarm. Raises a 404 problem."""
        await super().remove(name)
        await self.alarms.clear(name)

    async def pause(self, name: str) -> ScheduleView:
        """Pause a schedule. Raises a 404 problem."""
        return await self.change(name, lambda state: paused(state, True, self.clock.now()))

    async def resume(self, caller: Principal, name: str) -> ScheduleView:
        """Resume a schedule; one whose maker may not start its runs any more goes on with the caller's rights. Raises
        a 403 or 404 problem."""
        found = await self.read(name)
        maker = found.maker
        try:
            await self.runs.check(found.spec, maker)
        except StartRefused:
            check_start(caller, found.spec)
            maker = maker_of(caller)

        def resumed(state: ScheduleState) -> ScheduleState:
            own = maker if state.maker == found.maker else state.maker
            return paused(msgspec.structs.replace(state, maker=own), False, self.clock.now())

        return await self.change(name, resumed)

    async def run(self, caller: Principal, name: str, key: str | None) -> str:
        """Start a run of the schedule with the caller's rights at once, regardless of its overlap policy, and return
        its id; the same `key` of the same caller starts one. Raises a problem when it cannot be started."""
        found = await self.read(name)
        check_start(caller, found.spec)
        key = f"{caller.owner}\n{key or secrets.token_hex(16)}"
        run = await self.runs.run_of(self._start(caller, found, 0, key))
        if not await self.runs.is_known(run):
            await self.change(
                name,
                lambda state: started_by_hand(
                    state,
                    msgspec.structs.replace(self._start(caller, state, state.ticks, key), run=run),
                    self.clock.now(),
                ),
            )
            await self._check_started(name, run)
        return run

    def _start(self, caller: Principal, state: ScheduleState, number: int, key: str) -> OwedStart:
        try:
            return owed_start(state, self.clock.now(), number, key, maker_of(caller))
        except SpecError as error:
            raise invalid(str(error)) from error

    async def _check_started(self, name: str, run: str) -> None:
        """Raise a problem when the run, which was decided, could not be started."""
        state = await self.read(name)
        refused = next((one for one in state.outcomes if one.run == run and one.outcome == "failed"), None)
        if refused is not None:
            raise Problem(_STATUS.get(refused.code, 422), refused.code, refused.detail)


def schedule_view(state: ScheduleState, upcoming: int) -> ScheduleView:
    """Return the schedule as the API shows it, with at most so many next ticks."""
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
    """Raise a 422 problem when the task of a tick cannot be rendered."""
    try:
        owed_start(new_schedule(spec, now), now, 1)
    except SpecError as error:
        raise invalid(error.problem, field=error.key) from error


log = logging.getLogger("cadre.budgets")

_LOOK_SECONDS = 5.0
"""Seconds between two checks of the use of all budgets."""

_MAX_USES = 1000
"""Users of one budget that are shown, those with the greatest share first."""


@dataclass(frozen=True)
class BudgetEditor(Resource[BudgetSpec, BudgetState, BudgetView]):
    """Standing budgets; notices report those that are nearly or wholly used up."""

    states: NatsDefinitions[BudgetState]
    budgets: StandingBudgets
    notices: Notices
    definition = BUDGET
    view = BudgetView

    def stored(self, spec: BudgetSpec, before: BudgetState | None, caller: Principal) -> BudgetState:
        """Return the budget; what was used before in its window counts. The same specification again, and a pause, keep
        what notices have reported, so they do not repeat it."""
        limits = msgspec.structs.replace(spec, paused=False)
        is_same = before is not None and msgspec.structs.replace(before.spec, paused=False) == limits
        return BudgetState(spec=spec, told=before.told if before is not None and is_same else [])

    async def shown(self, state: BudgetState, upcoming: int) -> BudgetView:
        """Return the budget with what is used of it."""
        return _view(self.budgets.meter(state.spec))

    async def changed(self, name: str) -> None:
        """Have the next run that begins held to it."""
        self.budgets.forget()

    async def look_after(self) -> None:
        """Tell notices of budgets that are nearly or wholly used up, for ever."""
        while True:
            try:
                for meter in await self.budgets.meters():
                    await self.tell(meter)
            except (RetryableError, UnreadableMessage) as error:
                log.warning("budgets: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def tell(self, meter: BudgetMeter) -> None:
        """Enqueue deliveries for everything that no gateway has reported in this window."""
        spec, now = meter.spec, self.budgets.clock.now()
        if spec.paused:
            return
        due = [one for use in meter.uses.values() for one in budget_happenings(spec, meter.window, use, now)]
        if not due:
            return
        state, fence = await self.states.read(spec.name)
        if state is None or state.spec != spec:
            return
        new = [one for one in due if one.id not in state.told]
        told = [one.id for one in new if await self.notices.tell(one, spec.agent or spec.team or "")]
        if told:
            kept = [one.id for one in due if one.id in state.told]
            try:
                await self.states.write(spec.name, BudgetState(spec=spec, told=kept + told), fence)
            except Fenced:
                log.debug("another gateway reported budget %s", spec.name)


def _view(meter: BudgetMeter) -> BudgetView:
    spec = msgspec.to_builtins(meter.spec)
    del spec["name"]
    uses = sorted(meter.uses.values(), key=lambda use: (-use.share, use.user))
    return BudgetView(
        name=meter.spec.name,
        spec=spec,
        since=meter.window.begin,
        until=meter.window.end,
        share=uses[0].share if uses else 0.0,
        uses=uses[:_MAX_USES],
    )
