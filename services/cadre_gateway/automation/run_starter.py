"""Starts the runs of schedules and triggers, and says whether they go on."""

from dataclasses import dataclass
from typing import Any

import msgspec

from cadre.automation.schedule_state import OwedStart
from cadre.errors import BusFull
from cadre_gateway.automation.scheduler import StartRefused
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.run_end import RunEnd

_FULL = "capacity"
_NOT_FOUND = 404


@dataclass(frozen=True)
class RunStarter:
    """The runs that nobody waits for at the other end of a request."""

    submitter: Submitter
    lookup: RunLookup
    run_end: RunEnd

    async def start(self, start: OwedStart, options: dict[str, Any]) -> None:
        """Starts the run unless it is started; its agent need not be there. Raises StartRefused, RetryableError."""
        try:
            wanted = submission_of(start.agent, start.task, options)
            # Without a digest: what the key has started counts, also when the template has changed since.
            await self.submitter.submit(wanted, IdempotencyKey(start.key, ""), None, needs_agent=False)
        except Problem as problem:
            if problem.code == _FULL:
                raise BusFull(f"run {start.run}", problem.detail) from problem
            raise StartRefused(problem.detail) from problem

    async def is_active(self, run: str) -> bool:
        """Whether the run is started and has not ended. Raises BusUnavailable."""
        try:
            return not (await self.lookup.find(run)).finished
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            return False

    async def cancel(self, run: str, reason: str) -> None:
        """Asks the run to end, unless it has ended or is gone. Raises RetryableError."""
        try:
            await self.run_end.cancel(run, reason)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise


def submission_of(agent: str, task: str, options: dict[str, Any]) -> body.Submission:
    """A request for a run with these options. Raises a 422 problem that names what is wrong in them."""
    return body.submission(msgspec.json.encode({**options, "agent": agent, "task": task}))
