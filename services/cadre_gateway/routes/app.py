"""The HTTP routes: what each path answers, and its description for /openapi.json."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import Response

from cadre_gateway.desk import ANSWER_WITHIN, Desk
from cadre_gateway.index.run_list import State
from cadre_gateway.requests import body, problems
from cadre_gateway.requests.origin import own_origin
from cadre_gateway.requests.parameters import known_parameters
from cadre_gateway.requests.prefer import wait_seconds
from cadre_gateway.routes import (
    approvals,
    archive,
    dead_letters,
    files,
    memory,
    openapi,
    time_travel,
    tracing,
)
from cadre_gateway.routes.accepted import accepted, where
from cadre_gateway.runs import directory, lookup
from cadre_gateway.runs.event_stream import LAST_SEQ, EventStream, after_of, stream
from cadre_gateway.runs.submit import submit

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]


def build(desk: Desk) -> FastAPI:
    # No HTML pages: FastAPI's load their scripts from a public CDN.
    app = FastAPI(
        title="Cadre gateway",
        version="1",
        docs_url=None,
        redoc_url=None,
        telemetry={
            "tracing": desk.provider is not None,
            "tracer_provider": desk.provider,
            "operation_spans": False,
            "logs": False,
            "exclude": tracing.is_untraced,
        },
    )
    problems.install(app)
    for router in (
        _runs(desk),
        _directory(desk),
        approvals.router(desk),
        dead_letters.router(desk),
        time_travel.router(desk),
        archive.router(desk),
        files.router(desk),
        memory.router(desk),
        tracing.router(desk),
    ):
        app.include_router(
            router, dependencies=[Depends(own_origin), Depends(desk.check), Depends(known_parameters)]
        )
    openapi.describe(app)
    return app


def _runs(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/v1/runs", tags=["runs"])

    @router.post("", summary="Start a run", status_code=202, openapi_extra=openapi.submission())
    async def post_run(
        request: Request,
        idempotency_key: Annotated[str | None, Header()] = None,
        prefer: Annotated[str | None, Header()] = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """202 with the run's id, or with `Prefer: wait=SECONDS` 200 with its result when it ends in time, or
        with `stream: true` its events."""
        wanted = body.submission(await body.read(request))
        async with asyncio.timeout(ANSWER_WITHIN):
            run = await submit(desk, wanted, idempotency_key, traceparent)
        seconds = wait_seconds(prefer)
        answer: Response
        if wanted.stream:
            answer = EventStream(stream(desk, run.id, 0))
        elif seconds and await lookup.wait_for_end(desk, run.id, seconds):
            answer = _json(await lookup.result(desk, run.id, wanted.return_full_result))
        else:
            return accepted(run)
        answer.headers.update(where(run.id))
        return answer

    @router.get("", summary="List root runs, newest first", responses=openapi.answers(openapi.RunList))
    async def get_runs(
        agent: str | None = None,
        state: State | None = None,
        session: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: str | None = None,
    ) -> Response:
        try:
            found, more = desk.index.roots(
                agent=agent, state=state, session=session, limit=limit, before=before
            )
        except KeyError:
            raise problems.invalid(
                f"before: run {before!r} is not in the list; start again without it"
            ) from None
        return _json(openapi.RunList(runs=found, next=more))

    @router.get(
        "/{run}", summary="One run with all runs below it", responses=openapi.answers(lookup.RunDetail)
    )
    async def get_run(run: str, full: bool = False) -> Response:
        """`full=true` adds each run's memory."""
        async with asyncio.timeout(ANSWER_WITHIN):
            return _json(await lookup.detail(desk, run, full))

    @router.get("/{run}/events", summary="A run's events as Server-Sent Events", responses=openapi.events())
    async def get_events(
        run: str,
        after: Annotated[int | None, Query(ge=0, le=LAST_SEQ)] = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """History first, then live; resumes behind `Last-Event-ID` or `after`; ends with the event `end`."""
        try:
            begin = after_of(last_event_id, after)
        except ValueError as error:
            raise problems.invalid(str(error)) from error
        async with asyncio.timeout(ANSWER_WITHIN):
            await lookup.find(desk, run)
        return EventStream(stream(desk, run, begin))

    @router.post("/{run}/cancel", summary="End a run", status_code=202, openapi_extra=openapi.cancel())
    async def post_cancel(run: str, request: Request) -> Response:
        """202 when the run was asked to end, 200 with its state when it had ended already."""
        data = await body.read(request)
        reason = body.parse(data, body.CancelBody).reason if data.strip() else ""
        async with asyncio.timeout(ANSWER_WITHIN):
            found = await lookup.cancel(desk, run, reason)
        answer = _json({"id": found.id, "state": found.state}, 200 if found.finished else 202)
        answer.headers.update(tracing.trace_headers(run))
        return answer

    return router


def _directory(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["directory"])

    @router.get("/agents", summary="Live agents", responses=openapi.answers(openapi.AgentList))
    async def get_agents() -> Response:
        return _json(openapi.AgentList(directory.agents(desk.platform.registry.presences())))

    @router.get("/tools", summary="Live tools", responses=openapi.answers(openapi.ToolList))
    async def get_tools() -> Response:
        return _json(openapi.ToolList(directory.tools(desk.platform.registry.presences())))

    @router.get("/sandboxes", summary="Live sandboxes", responses=openapi.answers(openapi.SandboxList))
    async def get_sandboxes() -> Response:
        return _json(openapi.SandboxList(directory.sandboxes(desk.platform.registry.presences())))

    return router


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
