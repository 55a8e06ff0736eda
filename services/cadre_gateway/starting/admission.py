"""Decide whether a run may begin, and which id it gets; a repeated key finds the run that it began."""

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.streams.fenced_value import NatsStartClaims
from cadre.adapters.nats.streams.store_watch import NatsStorage
from cadre.api.directory import Figures
from cadre.api.runs import RunSummary
from cadre.automation.standing_budget import BudgetSpec, BudgetState, BudgetUse
from cadre.errors import BusUnavailable, Fenced
from cadre.ports import Clock
from cadre.protocol.messages import Task
from cadre.protocol.topology import generation_of, in_generation
from cadre.settings import TracingSettings
from cadre.telemetry.tracing.ids import handed_down
from cadre_gateway import SENDER
from cadre_gateway.access.gate import RateLimits
from cadre_gateway.access.principal import Principal
from cadre_gateway.access.reach import Owner, reaches
from cadre_gateway.index.usage_ledger import LedgerKey, UsageLedger
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, full, unknown_run
from cadre_gateway.requests.trace_link import note_sampling

_FRESH_SECONDS = 2.0
"""Seconds for which the list of budgets is not read again."""


class BudgetMeter:
    """The use of one budget in the window in which it was made, by account; see `BudgetSpec.account_of`."""

    def __init__(self, spec: BudgetSpec, now: float, spent: Iterable[tuple[LedgerKey, Figures]]) -> None:
        self.spec = spec
        self.window = spec.window_at(now)
        self.uses: dict[str, BudgetUse] = {}
        for key, sums in spent:
            self.add(key, sums)

    def add(self, key: LedgerKey, sums: Figures) -> None:
        """Count what a model call used, if it is of the budget; the window's first hour (of UTC) is counted whole."""
        began = self.window.begin - self.window.begin % 3600
        if not began <= key.hour < self.window.end or not self.spec.covers(key.agent, key.team, key.user):
            return
        account = self.spec.account_of(key.user)
        use = self.uses.setdefault(account, BudgetUse(user=account))
        use.tokens += sums.tokens
        use.cost += sums.cost
        use.share = self.spec.share(use.tokens, use.cost)


@dataclass
class StandingBudgets:
    """All standing budgets, as they were two seconds ago at most. Every method raises RetryableError."""

    states: NatsDefinitions[BudgetState]
    ledger: UsageLedger
    clock: Clock
    _meters: dict[str, BudgetMeter] = field(default_factory=dict)
    _read_at: float | None = None

    def __post_init__(self) -> None:
        self.ledger.listeners.append(self._count)

    async def meters(self) -> list[BudgetMeter]:
        """Return what is used of each budget in its present window, by name; without those that only a newer gateway
        reads.
        """
        if self._read_at is None or time.monotonic() - self._read_at > _FRESH_SECONDS:
            found = [one.spec for one in await self.states.all() if isinstance(one, BudgetState)]
            self._read_at = time.monotonic()
            self._meters = {spec.name: self._meter(spec) for spec in found}
        if self._meters:
            self.ledger.check_current()
        return [self._meter(meter.spec) for meter in self._meters.values()]

    def meter(self, spec: BudgetSpec) -> BudgetMeter:
        """Return what is used of a budget that was read or written this moment."""
        self.ledger.check_current()
        return self._meter(spec)

    async def admit(self, agent: str, user: str) -> None:
        """Raise a 429 problem when a new tree of the agent must not begin for this user."""
        for meter in await self.meters():
            spec = meter.spec
            use = meter.uses.get(spec.account_of(user))
            if use is not None and use.share >= 1 and not spec.paused and spec.covers(agent, agent, user):
                raise _exhausted(meter, use, self.clock.now())

    def forget(self) -> None:
        """Read the list again for the next question: it was changed here."""
        self._read_at = None

    def _meter(self, spec: BudgetSpec) -> BudgetMeter:
        """Return the meter of the budget for the present window; a new one counts what is in the ledger."""
        now = self.clock.now()
        known = self._meters.get(spec.name)
        if known is None or known.spec != spec or now >= known.window.end:
            known = BudgetMeter(spec, now, self.ledger.spending(spec.window_at(now).begin))
            self._meters[spec.name] = known
        return known

    def _count(self, key: LedgerKey, sums: Figures) -> None:
        for meter in self._meters.values():
            meter.add(key, sums)


def _exhausted(meter: BudgetMeter, use: BudgetUse, now: float) -> Problem:
    spec = meter.spec
    limits = []
    if spec.tokens is not None:
        limits.append(f"{use.tokens:,} of {spec.tokens:,} tokens")
    if spec.cost is not None:
        limits.append(f"{use.cost:.4g} of {spec.cost:g} in cost")
    whose = f" by {use.user}" if use.user else ""
    problem = Problem(
        429,
        "budget-exhausted",
        f"budget {spec.name!r}: {' and '.join(limits)} of this {spec.window} are used{whose}; runs under way go on,"
        f" new ones begin again at {spec.local(meter.window.end)} ({spec.time_zone}), or once the budget is raised",
        opens_at=int(meter.window.end),
    )
    problem.headers = {"Retry-After": str(max(1, int(meter.window.end - now) + 1))}
    return problem


MAX_FILL_SHARE = 0.9
"""No run begins beyond this share of the storage; the rest is for the active runs."""


@dataclass(frozen=True)
class Capacity:
    """Refuses new runs while there is still room for the active ones to come to their end."""

    storage: NatsStorage

    async def admit(self, tree: str) -> None:
        """Raise a 429 problem when a new tree must not begin, BusUnavailable."""
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
    """The person for whom it runs."""
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
        """Return the id of the agent's run that the key has started, or will start: the same from every gateway, even
        if they know different shards at that moment."""
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
    limits: RateLimits
    keyed: KeyedRuns
    bus: NatsBus
    tracing: TracingSettings

    async def admit(
        self,
        caller: Principal,
        agent: str,
        user: str | None,
        key: IdempotencyKey | None,
        *,
        needs_agent: bool = True,
    ) -> Admitted:
        """Admit a new run of the agent for `user` with the caller's rights; if `needs_agent`, the agent must be known:
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
        task = replace(task, trace=handed_down(self.tracing, run, task.trace))
        note_sampling(task)
        if key is None or generation_of(run):
            await self.bus.send(task, SENDER)
        else:
            try:
                await self.bus.start(task, SENDER)
            except Fenced as error:
                await self.lookup.shards.reload()
                raise BusUnavailable("starting a run", "shards are being added") from error
        if key is not None and (first := await self.lookup.history.task(run, run)) is not None:
            key.check(first.request)

    async def _started_by(self, key: IdempotencyKey, run: str) -> RunSummary | None:
        """Return the run that the key started before, if any. Raises a 422 problem when another request did."""
        history = self.lookup.history
        task = await history.task(run, run)
        if task is not None:
            key.check(task.request)
        elif not await history.has_entries(run, run):
            return None
        return await self.lookup.known(run)


def _unknown_agent(agent: str, live: Iterable[str]) -> Problem:
    """Return the 404 problem that names the agents that are known."""
    if names := sorted(live):
        others = f"; there are: {', '.join(names)}"
    else:
        others = ", nor is there any other: start one with `cadre agent FILE`"
    return Problem(404, "unknown-agent", f"no agent is named {agent!r}{others}")


def new_run_id(generation: int = 0) -> str:
    """Return 32 characters that say in which generation of shards the run begins; later runs sort behind earlier
    ones."""
    return in_generation(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}", generation)
