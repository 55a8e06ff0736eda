"""The HTTP routes of rollouts: show, change."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.api.rollouts import AgentLag, RolloutChange, RolloutView
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.rollouts.editor import RolloutEditor
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer

_CHANGE = openapi.operation(RolloutChange, {"200": ("Changed", RolloutView)})


def router(rollouts: RolloutEditor) -> APIRouter:
    """The routes of the rollouts of agents."""
    routes = APIRouter(prefix="/v1/agents/{agent}", tags=["rollouts"])

    @routes.get("/lag", summary="What waits for an agent's replicas", responses=openapi.answers(AgentLag))
    async def get_lag(agent: str, beside: str = "") -> Response:
        """For what scales them. With `beside` of the second revision whose objects are called so, else of the first."""
        async with answer_deadline():
            return json_answer(AgentLag(await rollouts.lag(agent, beside)))

    @routes.get(
        "/rollout", summary="How an agent's revisions share its runs", responses=openapi.answers(RolloutView)
    )
    async def get_rollout(agent: str) -> Response:
        async with answer_deadline():
            return json_answer(await rollouts.show(agent))

    @routes.post("/rollout", summary="Change how they share them", openapi_extra=_CHANGE)
    async def post_rollout(agent: str, request: Request) -> Response:
        """409 when `version` is named and is not that of the rollout any more. Runs stay with their revision."""
        change = body.parse(await body.read(request), RolloutChange)
        async with answer_deadline():
            return json_answer(await rollouts.change(agent, change))

    return routes
