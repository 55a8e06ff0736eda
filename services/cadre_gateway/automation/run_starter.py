"""Starts the runs of schedules and triggers, and says whether they go on."""

from dataclasses import dataclass
from typing import Any

import msgspec

from cadre.api.runs import RunSummary
from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import OwedStart
from cadre.automation.trigger import TriggerSpec
from cadre.errors import BusFull
from cadre.protocol.access import Maker
from cadre_gateway.access.makers import MakerGone, Makers
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.scheduler import StartRefused
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem
from cadre_gateway.starting.admission import KeyedRuns
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.run_end import RunEnd

_FULL = "capacity"
_NOT_FOUND = 404


@dataclass(frozen=True)
class RunStarter:
    """The runs that no request waits for. Each is started with the rights that somebody has at that moment: who wrote
    the schedule or the trigger, or who starts it by hand."""

    submitter: Submitter
    keyed: KeyedRuns
    lookup: RunLookup
    run_end: RunEnd
    makers: Makers

    async def start(self, start: OwedStart, options: dict[str, Any], maker: Maker) -> str:
        """Start the run unless it is started, and return its id; its agent need not be there. Raises StartRefused,
        RetryableError."""
        caller = await self._caller(start.starter or maker)
        try:
            wanted = submission_of(start.agent, start.task, options)
            # Without a digest: what the key has started counts, also when the template has changed since.
            begun = await self.submitter.submit(
                caller, wanted, IdempotencyKey(start.owner, start.key), None, needs_agent=False
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
        """Raises StartRefused when the maker may not start such runs at present, RetryableError."""
        caller = await self._caller(maker)
        try:
            check_start(caller, spec)
        except Problem as problem:
            raise StartRefused(problem.detail, "maker-forbidden") from problem

    async def is_known(self, run: str) -> bool:
        """Return whether the run was started, if it has not been erased since. Raises RetryableError."""
        return await self._find(run) is not None

    async def is_active(self, run: str) -> bool:
        """Whether the run is started and has not ended. Raises BusUnavailable."""
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
        """Asks the run to end, unless it has ended or is gone. Raises RetryableError."""
        try:
            await self.run_end.cancel(run, reason)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise


def check_start(caller: Principal, spec: ScheduleSpec | TriggerSpec) -> None:
    """Raises a 403 or 422 problem unless the caller may start runs with these options."""
    caller.submission(submission_of(spec.agent, "as of its first start", spec.options))


def submission_of(agent: str, task: str, options: dict[str, Any]) -> body.Submission:
    """A request for a run with these options. Raises a 422 problem that names what is wrong in them."""
    return body.submission(msgspec.json.encode({**options, "agent": agent, "task": task}))
