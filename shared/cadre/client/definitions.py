"""Schedules, triggers, notices and budgets from Python: listed, made, removed."""

from collections.abc import Mapping
from typing import Any

from cadre.api.automations import BudgetView, NoticeView, ScheduleView, TriggerView
from cadre.client.transport import Transport, typed


class Definitions(Transport):
    """Every method raises ClientError: NotFound for a name that there is not, InvalidRequest for a wrong key."""

    async def schedules(self) -> list[ScheduleView]:
        """All schedules, by name, each with its next tick."""
        return typed((await self.request("GET", "/v1/schedules"))["schedules"], list[ScheduleView])

    async def schedule(self, name: str, *, upcoming: int = 5) -> ScheduleView:
        """One schedule with so many next ticks and what became of its last ones."""
        path = f"/v1/schedules/{name}"
        return typed(await self.request("GET", path, params={"next": upcoming}), ScheduleView)

    async def put_schedule(self, name: str, spec: Mapping[str, Any]) -> ScheduleView:
        """Makes or replaces a schedule by the keys of its file: `agent`, `task`, `cron` or `every`, …"""
        return typed(await self.request("PUT", f"/v1/schedules/{name}", json=dict(spec)), ScheduleView)

    async def remove_schedule(self, name: str) -> None:
        """Removes a schedule; its runs go on."""
        await self.request("DELETE", f"/v1/schedules/{name}")

    async def triggers(self) -> list[TriggerView]:
        """All triggers, by name."""
        return typed((await self.request("GET", "/v1/triggers"))["triggers"], list[TriggerView])

    async def trigger(self, name: str) -> TriggerView:
        """One trigger."""
        return typed(await self.request("GET", f"/v1/triggers/{name}"), TriggerView)

    async def put_trigger(self, name: str, spec: Mapping[str, Any]) -> TriggerView:
        """Makes or replaces a trigger by the keys of its file: `agent`, `task`, `subject` or `webhook`, …"""
        return typed(await self.request("PUT", f"/v1/triggers/{name}", json=dict(spec)), TriggerView)

    async def remove_trigger(self, name: str) -> None:
        """Removes a trigger; runs that it started go on."""
        await self.request("DELETE", f"/v1/triggers/{name}")

    async def notices(self) -> list[NoticeView]:
        """All notices, by name."""
        return typed((await self.request("GET", "/v1/notices"))["notices"], list[NoticeView])

    async def notice(self, name: str) -> NoticeView:
        """One notice."""
        return typed(await self.request("GET", f"/v1/notices/{name}"), NoticeView)

    async def put_notice(self, name: str, spec: Mapping[str, Any]) -> NoticeView:
        """Makes or replaces a notice by the keys of its file: `url`, `secret_env`, `events`, …"""
        return typed(await self.request("PUT", f"/v1/notices/{name}", json=dict(spec)), NoticeView)

    async def remove_notice(self, name: str) -> None:
        """Removes a notice; what is on its way is not delivered."""
        await self.request("DELETE", f"/v1/notices/{name}")

    async def budgets(self) -> list[BudgetView]:
        """All standing budgets, by name, with what is used of them."""
        return typed((await self.request("GET", "/v1/budgets"))["budgets"], list[BudgetView])

    async def budget(self, name: str) -> BudgetView:
        """One budget."""
        return typed(await self.request("GET", f"/v1/budgets/{name}"), BudgetView)

    async def put_budget(self, name: str, spec: Mapping[str, Any]) -> BudgetView:
        """Makes or replaces a budget by the keys of its file: `window`, `tokens` or `cost`, `user`, …"""
        return typed(await self.request("PUT", f"/v1/budgets/{name}", json=dict(spec)), BudgetView)

    async def remove_budget(self, name: str) -> None:
        """Removes a budget."""
        await self.request("DELETE", f"/v1/budgets/{name}")
