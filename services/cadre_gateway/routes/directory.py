"""The HTTP routes that say who is there."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec.structs import replace

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.api.directory import LiveAgent, Load
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.index.figures import known_open_runs_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.reading import directory
from cadre_gateway.reading.contracts import LiveContracts
from cadre_gateway.reading.load import load_of
from cadre_gateway.requests.problems import Problem, answer_deadline
from cadre_gateway.rollouts.warnings import warnings_of
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer


def router(
    registry: NatsRegistry,
    contracts: LiveContracts,
    index: RunIndex,
    lags: Callable[[], Awaitable[list[Sample]]],
    retire: Callable[[ServiceKey], Awaitable[None]],
) -> APIRouter:
    """The routes of agents, tools and sandboxes. `lags` counts what waits in each queue; `retire` takes one of them out
    of the deployment."""
    routes = APIRouter(prefix="/v1", tags=["directory"])

    @routes.get(
        "/agents", summary="Agents: live, away, at rest", responses=openapi.answers(openapi.AgentList)
    )
    async def get_agents() -> Response:
        presences = registry.reachable()
        agents = directory.agents(presences, await contracts.specs(presences))
        return json_answer(openapi.AgentList([await _with_rollout(one) for one in agents]))

    @routes.delete("/agents/{agent}", status_code=204, summary="Take an agent out of the deployment")
    async def delete_agent(agent: str) -> Response:
        """The agent is unknown once its replicas of now are gone, until another one starts. 404 when it is unknown."""
        return await _retired(ServiceKey("agent", agent))

    @routes.delete("/tools/{tool}", status_code=204, summary="Take a tool out of the deployment")
    async def delete_tool(tool: str) -> Response:
        """As an agent."""
        return await _retired(ServiceKey("tool", tool))

    @routes.delete("/sandboxes/{pool}", status_code=204, summary="Take a sandbox pool out of the deployment")
    async def delete_sandbox(pool: str) -> Response:
        """As an agent."""
        return await _retired(ServiceKey("sandbox", pool))

    @routes.get("/tools", summary="Tools: live, away", responses=openapi.answers(openapi.ToolList))
    async def get_tools() -> Response:
        return json_answer(openapi.ToolList(directory.tools(registry.reachable())))

    @routes.get(
        "/sandboxes", summary="Sandbox pools: live, away", responses=openapi.answers(openapi.SandboxList)
    )
    async def get_sandboxes() -> Response:
        return json_answer(openapi.SandboxList(directory.sandboxes(registry.reachable())))

    @routes.get("/load", summary="How much there is to do", responses=openapi.answers(Load))
    async def get_load() -> Response:
        """Messages in the queues of agents and tools; of each agent its runs that go on, and how long its last 200 runs
        that succeeded took."""
        async with answer_deadline():
            waiting = await lags()
        return json_answer(await load_of(index, waiting))

    async def _retired(service: ServiceKey) -> Response:
        if service not in registry.absences():
            what = "pool" if service.kind == "sandbox" else service.kind
            raise Problem(
                404, f"unknown-{what}", f"no {what} is named {service.name!r}: `cadre ps` lists them"
            )
        async with answer_deadline():
            await retire(service)
        return Response(status_code=204)

    async def _with_rollout(agent: LiveAgent) -> LiveAgent:
        if (rollout := registry.rollout(agent.name)) is None:
            return agent
        live = {one.revision for one in agent.replicas}
        lines = warnings_of(rollout, live, await known_open_runs_of(index, agent.name))
        return replace(agent, rollout=lines, differing=[])

    return routes
