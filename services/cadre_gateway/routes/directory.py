"""Serve the HTTP routes that list agents, tools and sandboxes, with their load and their rollouts."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, get_args

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from msgspec.structs import replace

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.api.directory import (
    AgentLag,
    AgentLoad,
    Dimension,
    FiguresRow,
    IndexRebuild,
    IndexState,
    LiveAgent,
    Load,
    QueueLoad,
    RolloutChange,
    RolloutView,
    Statistics,
)
from cadre.ports import Clock
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.index.lists import known_open_runs_of, open_runs, seconds_taken
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.projector import IndexRebuilder
from cadre_gateway.reading import directory
from cadre_gateway.reading.directory import LiveContracts
from cadre_gateway.reading.left_queues import LeftQueues
from cadre_gateway.requests import body
from cadre_gateway.requests.parameters import TIME, moment
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.rollouts.changes import warnings_of
from cadre_gateway.rollouts.editor import RolloutEditor
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer

MOST_RUNS = 200
"""So many of an agent's runs that have ended, the last ones, tell how long one takes."""

_CHANGE = openapi.operation(RolloutChange, {"200": ("Changed", RolloutView)})


def router(
    registry: NatsRegistry,
    contracts: LiveContracts,
    index: RunIndex,
    lags: Callable[[], Awaitable[list[Sample]]],
    retire: Callable[[ServiceKey], Awaitable[None]],
) -> APIRouter:
    """Return the routes of agents, tools and sandboxes. `lags` counts what waits in each queue; `retire` takes one of
    them out of the deployment."""
    routes = APIRouter(prefix="/v1", tags=["directory"])

    @routes.get("/agents", summary="Agents: live, away, at rest", responses=openapi.answers(openapi.AgentList))
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

    @routes.get("/sandboxes", summary="Sandbox pools: live, away", responses=openapi.answers(openapi.SandboxList))
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
            raise Problem(404, f"unknown-{what}", f"no {what} is named {service.name!r}: `cadre ps` lists them")
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


def queue_router(queues: LeftQueues) -> APIRouter:
    """Return the routes of all queues, and of the removal of those that nothing serves."""
    routes = APIRouter(prefix="/v1", tags=["directory"])

    @routes.get("/queues", summary="Queues and who serves them", responses=openapi.answers(openapi.QueueList))
    async def get_queues() -> Response:
        """Of agents, tools and sandbox pools, over all shards."""
        async with answer_deadline():
            return json_answer(openapi.QueueList(await queues.list()))

    @routes.delete("/queues/{kind}/{name}", status_code=204, summary="Remove a queue that nothing serves")
    async def delete_queue(kind: str, name: str) -> Response:
        """Its service is retired or forgotten, and nothing waits in it; 409 otherwise. A service that was forgotten is
        retired by it."""
        async with answer_deadline():
            await queues.remove(ServiceKey(kind, name))
        return Response(status_code=204)

    return routes


async def load_of(index: RunIndex, lags: Iterable[Sample]) -> Load:
    """Return the load of all agents that the list has runs of, and all queues. Raises RunIndexUnavailable."""
    queued: Counter[tuple[str, str]] = Counter()
    for sample in lags:
        queued[sample.attributes[names.QUEUE_KIND], sample.attributes[names.QUEUE_NAME]] += int(sample.value)
    going: Counter[str] = Counter()
    for one in await open_runs(index):
        if one.state != "queued":
            going[one.agent] += one.runs
    took = await seconds_taken(index, MOST_RUNS)
    return Load(
        agents=[
            AgentLoad(
                name=name,
                going=going[name],
                p50_seconds=_quantile(took.get(name, []), 0.5),
                p95_seconds=_quantile(took.get(name, []), 0.95),
                counted=len(took.get(name, [])),
            )
            for name in sorted({*going, *took})
        ],
        queues=[QueueLoad(kind, name, count) for (kind, name), count in sorted(queued.items())],
    )


def _quantile(values: Iterable[float], part: float) -> float | None:
    """Return the least value that this share of them does not exceed; None for an empty list."""
    found = sorted(values)
    return found[max(0, -int(-part * len(found) // 1) - 1)] if found else None


def rollout_router(rollouts: RolloutEditor) -> APIRouter:
    """Return the routes of the rollouts of agents."""
    routes = APIRouter(prefix="/v1/agents/{agent}", tags=["rollouts"])

    @routes.get("/lag", summary="What waits for an agent's replicas", responses=openapi.answers(AgentLag))
    async def get_lag(agent: str, beside: str = "") -> Response:
        """For what scales them. With `beside` of the second revision whose objects are called so, else of the first."""
        async with answer_deadline():
            return json_answer(AgentLag(await rollouts.lag(agent, beside)))

    @routes.get("/rollout", summary="How an agent's revisions share its runs", responses=openapi.answers(RolloutView))
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


MAX_ROWS = 10_000
"""One answer has at most so many."""

_MONTH_SECONDS = 30 * 86_400.0
Only = Annotated[str | None, Query(description="Only what is of this one")]


def statistics_router(ledger: UsageLedger, clock: Clock) -> APIRouter:
    """Return the route of statistics."""
    routes = APIRouter(prefix="/v1", tags=["statistics"])

    @routes.get("/stats", summary="What agents have used", responses=openapi.answers(Statistics))
    async def get_statistics(  # noqa: PLR0913 - one for each parameter of the query
        since: Annotated[str | None, Query(description=TIME + "; 30 days ago unless given")] = None,
        until: Annotated[str | None, Query(description=TIME + "; now unless given")] = None,
        by: Annotated[str, Query(description=f"Of {', '.join(get_args(Dimension))}, with commas")] = "agent",
        team: Only = None,
        agent: Only = None,
        user: Only = None,
        session: Only = None,
        model: Only = None,
        tool: Only = None,
    ) -> Response:
        """Sums over the journals, runs that were removed since included. Sums are over whole hours, and over whole days
        of UTC for data older than 40 days; by `minute` over whole minutes of the last two hours."""
        ledger.check_current()
        now = clock.now()
        begin = moment("since", since, now) if since is not None else now - _MONTH_SECONDS
        end = moment("until", until, now) if until is not None else now
        names = {"team": team, "agent": agent, "user": user, "session": session, "model": model, "tool": tool}
        only = {name: value for name, value in names.items() if value is not None}
        dimensions = _dimensions(by)
        of_minutes = "minute" in dimensions
        begin -= begin % (60 if of_minutes else 3600)
        rows = ledger.rows(begin, end, dimensions, only, of_minutes=of_minutes)
        if len(rows) > MAX_ROWS:
            raise invalid(f"by: {len(rows):,} rows are over {MAX_ROWS:,}: ask for a shorter time or for less at once")
        total = next(iter(ledger.rows(begin, end, (), only, of_minutes=of_minutes)), FiguresRow())
        return json_answer(Statistics(since=begin, until=end, by=dimensions, rows=rows, total=total))

    return routes


def _dimensions(written: str) -> list[Dimension]:
    wanted = dict.fromkeys(name.strip() for name in written.split(",") if name.strip())
    try:
        return msgspec.convert(list(wanted), list[Dimension])
    except msgspec.ValidationError as error:
        known = ", ".join(get_args(Dimension))
        raise invalid(f"by: {written!r}: write some of {known}, with commas between them") from error


def index_router(rebuilder: IndexRebuilder) -> APIRouter:
    """Return the routes of this gateway's index; each gateway has its own."""
    routes = APIRouter(prefix="/v1/index", tags=["index"])

    @routes.get("", summary="What is in this gateway's index", responses=openapi.answers(IndexState))
    async def get_index() -> Response:
        async with answer_deadline():
            return json_answer(await rebuilder.state())

    @routes.post(
        "/rebuild",
        summary="Rebuild the index from the journals",
        status_code=202,
        responses=openapi.answers(IndexRebuild, 202),
    )
    async def post_rebuild() -> Response:
        """The gateway serves its lists as they are meanwhile; `GET /v1/index` shows the progress."""
        return json_answer(await rebuilder.begin(), 202)

    return routes
