"""Standing budgets: what is used of them, from the ledger, and whether another run may begin."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.api.statistics import Figures
from cadre.automation.standing_budget import BudgetSpec, BudgetState, BudgetUse
from cadre.ports import Clock
from cadre_gateway.index.usage_ledger import LedgerKey, UsageLedger
from cadre_gateway.requests.problems import Problem

_FRESH_SECONDS = 2.0
"""For so long the list of budgets is not read anew."""


class BudgetMeter:
    """What is used of one budget in the window in which it was made, by account; see `BudgetSpec.account_of`."""

    def __init__(self, spec: BudgetSpec, now: float, spent: Iterable[tuple[LedgerKey, Figures]]) -> None:
        self.spec = spec
        self.window = spec.window_at(now)
        self.uses: dict[str, BudgetUse] = {}
        for key, sums in spent:
            self.add(key, sums)

    def add(self, key: LedgerKey, sums: Figures) -> None:
        """Counts what a model call used, if it is of the budget; the window's first hour (of UTC) is counted whole."""
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
        """What is used of each budget in its present window, by name; without those that only a newer gateway reads."""
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
        """Raises a 429 problem when a new tree of the agent must not begin for this user."""
        for meter in await self.meters():
            spec = meter.spec
            use = meter.uses.get(spec.account_of(user))
            if use is not None and use.share >= 1 and spec.covers(agent, agent, user):
                raise _exhausted(meter, use, self.clock.now())

    def forget(self) -> None:
        """Has the list read anew at the next question: it was changed here."""
        self._read_at = None

    def _meter(self, spec: BudgetSpec) -> BudgetMeter:
        """The meter of the budget for the present window; a new one counts what is in the ledger."""
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
