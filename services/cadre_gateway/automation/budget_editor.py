"""Changes to standing budgets, and the state that notices read."""

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.api.automations import BudgetView
from cadre.automation.automation_file import BUDGET
from cadre.automation.standing_budget import BudgetSpec, BudgetState, budget_happenings
from cadre.errors import Fenced, RetryableError, UnreadableMessage
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.notices import Notices
from cadre_gateway.automation.resource import Resource
from cadre_gateway.starting.admission import BudgetMeter, StandingBudgets

log = logging.getLogger("cadre.budgets")

_LOOK_SECONDS = 5.0
"""Between two looks at what is used of all budgets."""

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
        """Return the budget; what was used before in its window counts. The same specification again keeps what notices
        have reported, so they do not repeat it."""
        return before if before is not None and before.spec == spec else BudgetState(spec=spec)

    async def shown(self, state: BudgetState, upcoming: int) -> BudgetView:
        """Return the budget with what is used of it."""
        return _view(self.budgets.meter(state.spec))

    async def changed(self, name: str) -> None:
        """Have the next run that begins held to it."""
        self.budgets.forget()

    async def look_after(self) -> None:
        """Tells notices of budgets that are nearly or wholly used up, for ever."""
        while True:
            try:
                for meter in await self.budgets.meters():
                    await self.tell(meter)
            except (RetryableError, UnreadableMessage) as error:
                log.warning("budgets: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def tell(self, meter: BudgetMeter) -> None:
        """Puts deliveries on their way for what no gateway has told in this window."""
        spec, now = meter.spec, self.budgets.clock.now()
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
                log.debug("another gateway told of budget %s", spec.name)


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
