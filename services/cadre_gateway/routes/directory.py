"""The HTTP routes that say who is there."""

from fastapi import APIRouter
from fastapi.responses import Response

from cadre.adapters.nats.registry import NatsRegistry
from cadre_gateway.reading import directory
from cadre_gateway.reading.contracts import LiveContracts
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer


def router(registry: NatsRegistry, contracts: LiveContracts) -> APIRouter:
    """The routes of agents, tools and sandboxes."""
    routes = APIRouter(prefix="/v1", tags=["directory"])

    @routes.get("/agents", summary="Live agents", responses=openapi.answers(openapi.AgentList))
    async def get_agents() -> Response:
        presences = registry.presences()
        return json_answer(
            openapi.AgentList(directory.agents(presences, await contracts.problems(presences)))
        )

    @routes.get("/tools", summary="Live tools", responses=openapi.answers(openapi.ToolList))
    async def get_tools() -> Response:
        return json_answer(openapi.ToolList(directory.tools(registry.presences())))

    @routes.get("/sandboxes", summary="Live sandboxes", responses=openapi.answers(openapi.SandboxList))
    async def get_sandboxes() -> Response:
        return json_answer(openapi.SandboxList(directory.sandboxes(registry.presences())))

    return routes
