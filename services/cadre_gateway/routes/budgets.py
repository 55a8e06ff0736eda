"""The HTTP routes of standing budgets: list, make, show, remove."""

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.api.automations import BudgetView
from cadre.automation.standing_budget import BudgetSpec
from cadre_gateway.automation.budget_editor import BudgetEditor
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer
from cadre_gateway.routes.automation.schedules import spec_of

_PUT = openapi.operation(BudgetSpec, {"200": ("Made or replaced", BudgetView)})


class BudgetList(msgspec.Struct):
    """All standing budgets, by name."""

    budgets: list[BudgetView]


def router(budgets: BudgetEditor) -> APIRouter:
    """The routes of standing budgets."""
    routes = APIRouter(prefix="/v1/budgets", tags=["budgets"])

    @routes.get("", summary="All standing budgets, by name", responses=openapi.answers(BudgetList))
    async def get_budgets() -> Response:
        async with answer_deadline():
            return json_answer(BudgetList(await budgets.all()))

    @routes.get("/{name}", summary="One standing budget", responses=openapi.answers(BudgetView))
    async def get_budget(name: str) -> Response:
        async with answer_deadline():
            return json_answer(await budgets.show(name))

    @routes.put("/{name}", summary="Make or replace a standing budget", openapi_extra=_PUT)
    async def put_budget(name: str, request: Request) -> Response:
        """What was used in its present window before counts."""
        spec = await spec_of(BudgetSpec, name, request)
        async with answer_deadline():
            return json_answer(await budgets.put(spec))

    @routes.delete("/{name}", summary="Remove a standing budget", status_code=204, response_class=Response)
    async def delete_budget(name: str) -> Response:
        async with answer_deadline():
            await budgets.remove(name)
        return Response(status_code=204)

    return routes
