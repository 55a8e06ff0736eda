"""Decide whether a run may begin, and which id it gets; a repeated key finds the run that it began."""

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.storage import NatsStorage
from cadre.adapters.nats.streams.start_claims import NatsStartClaims
from cadre.api.runs import RunSummary
from cadre.errors import BusUnavailable, Fenced
from cadre.protocol.generations import generation_of, in_generation
from cadre.protocol.messages import Task
from cadre_gateway import SENDER
from cadre_gateway.access.principal import Principal
from cadre_gateway.access.rate_limit import RateLimits
from cadre_gateway.access.reach import Owner, reaches
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, full, unknown_run
from cadre_gateway.starting.standing_budgets import StandingBudgets

MAX_FILL_SHARE = 0.9
"""No run begins beyond this share of the storage; the rest is for the active runs."""


@dataclass(frozen=True)
class Capacity:
    """Refuses new runs while there is still room for the active ones to come to their end."""

    storage: NatsStorage

    async def admit(self, tree: str) -> None:
        """Raises a 429 problem when a new tree must not begin, BusUnavailable."""
        usage = await self.storage.fullest(tree)
        if usage is not None and usage.share >= MAX_FILL_SHARE:
            raise full(
                f"{usage.where} holds {usage.used:,} of {usage.limit:,} bytes:"
                f" no run is begun over {MAX_FILL_SHARE:.0%}"
            )


class Admitted(NamedTuple):
    """A run that a request may begin."""

    run: str
    user: str | None
    """The person whom it is for."""
    known: RunSummary | None
    """The run itself, when the same request has begun it before."""


@dataclass(frozen=True)
class KeyedRuns:
    """Finds the ids of runs that keys start. Every method raises RetryableError."""

    lookup: RunLookup
    claims: NatsStartClaims

    @property
    def newest(self) -> int:
        """Return the number of the generation, from 0, in which runs begin now."""
        return self.lookup.shards.topology.newest

    async def run_of(self, key: IdempotencyKey, agent: str) -> str:
        """Return the id of the agent's run that the key has started, or will start: the same from every gateway,
        whatever each knows of the shards at that moment."""
        first = key.run_of(agent)
        if not self.newest:
            return first  # published only while the start is not claimed for a later generation
        claimed = await self.claims.claim(first, self.newest)
        if claimed > self.newest:
            await self.lookup.shards.reload()
            if claimed > self.newest:
                raise BusUnavailable("looking for a run", "this gateway does not know its shards yet")
        # After the claim: a gateway that does not know of it can start nothing there any more.
        for generation in range(self.newest + 1):
            run = in_generation(first, generation)
            if generation != claimed and await self._has_begun(run):
                return run
        return in_generation(first, claimed)

    async def _has_begun(self, run: str) -> bool:
        history = self.lookup.history
        return (
            await history.task(run, run) is not None
            or await history.has_entries(run, run)
            or await self.lookup.is_erased(run)
        )


@dataclass(frozen=True)
class Admission:
    """Checks that a caller may start a run of an agent, that the agent is known, that the run is new, that there is
    room for it, and that neither a budget nor the caller's runs of a day are used up.
    """

    lookup: RunLookup
    registry: NatsRegistry
    capacity: Capacity
    budgets: StandingBudgets
    history: History
    limits: RateLimits
    keyed: KeyedRuns
    bus: NatsBus

    async def admit(
        self,
        caller: Principal,
        agent: str,
        user: str | None,
        key: IdempotencyKey | None,
        *,
        needs_agent: bool = True,
    ) -> Admitted:
        """Admits a new run of the agent for `user` with the caller's rights; if `needs_agent`, the agent must be known:
        one that is away or at rest finds the run in its inbox. A repeated `key` finds the run that it started before,
        if the caller reaches that.

        Raises a 403, 404, 410, 422 or 429 problem, RetryableError.
        """
        user = caller.starts_for(agent, user)
        run = new_run_id(self.keyed.newest) if key is None else await self.keyed.run_of(key, agent)
        if needs_agent and agent not in (live := live_agents(self.registry.reachable())):
            # In a full store nothing can say that it is there.
            await self.capacity.admit(run)
            raise _unknown_agent(agent, live)
        known = await self._started_by(key, run) if key is not None else None
        if known is None:
            # A new id was never erased.
            if key is not None and await self.lookup.is_erased(run):
                raise Problem(
                    410,
                    "run-erased",
                    f"run {run}, which this Idempotency-Key started, was erased: send another key",
                )
            await self.capacity.admit(run)
            await self.budgets.admit(agent, user or "")
            self.limits.check_start(caller)
        elif not reaches(caller, Owner(known.user or "", known.agent)):
            raise unknown_run(run)
        return Admitted(run, user, known)

    async def begin(self, task: Task, key: IdempotencyKey | None) -> None:
        """Publish the task of a new root run. Raises a 422 problem when it loses to that of another request with the
        same key, which came at the same moment; RetryableError, also when the key's run begins in shards that were
        added meanwhile."""
        run = task.run
        if key is None or generation_of(run):
            await self.bus.send(task, SENDER)
        else:
            try:
                await self.bus.start(task, SENDER)
            except Fenced as error:
                await self.lookup.shards.reload()
                raise BusUnavailable("starting a run", "shards are being added") from error
        if key is not None and (first := await self.history.task(run, run)) is not None:
            key.check(first.request)

    async def _started_by(self, key: IdempotencyKey, run: str) -> RunSummary | None:
        """The run that the key started before, if any. Raises a 422 problem when another request did."""
        task = await self.history.task(run, run)
        if task is not None:
            key.check(task.request)
        elif not await self.history.has_entries(run, run):
            return None
        return await self.lookup.known(run)


def _unknown_agent(agent: str, live: Iterable[str]) -> Problem:
    """The 404 problem that names the agents that are known."""
    if names := sorted(live):
        others = f"; there are: {', '.join(names)}"
    else:
        others = ", nor is there any other: start one with `cadre agent FILE`"
    return Problem(404, "unknown-agent", f"no agent is named {agent!r}{others}")


def new_run_id(generation: int = 0) -> str:
    """Return 32 characters that say in which generation of shards the run begins; later runs sort behind earlier
    ones."""
    return in_generation(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}", generation)
