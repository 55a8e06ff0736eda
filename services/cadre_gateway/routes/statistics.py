"""The HTTP route of statistics: what agents have used."""

from typing import Annotated, get_args

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response

from cadre.api.directory import IndexRebuild, IndexState
from cadre.api.statistics import Dimension, Figures, Statistics
from cadre.ports import Clock
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.rebuild import IndexRebuilder
from cadre_gateway.requests.parameters import TIME, moment
from cadre_gateway.requests.problems import answer_deadline, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer

MAX_ROWS = 10_000
"""One answer has at most so many."""

_MONTH_SECONDS = 30 * 86_400.0
Only = Annotated[str | None, Query(description="Only what is of this one")]


def router(ledger: UsageLedger, clock: Clock) -> APIRouter:
    """The route of statistics."""
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
        """Sums over the journals, runs that were removed since included. Whole hours are told, and of what is older
        than 40 days whole days of UTC."""
        ledger.check_current()
        now = clock.now()
        begin = moment("since", since, now) if since is not None else now - _MONTH_SECONDS
        end = moment("until", until, now) if until is not None else now
        begin -= begin % 3600
        names = {"team": team, "agent": agent, "user": user, "session": session, "model": model, "tool": tool}
        only = {name: value for name, value in names.items() if value is not None}
        dimensions = _dimensions(by)
        rows = ledger.rows(begin, end, dimensions, only)
        if len(rows) > MAX_ROWS:
            raise invalid(
                f"by: {len(rows):,} rows are over {MAX_ROWS:,}: ask for a shorter time or for less at once"
            )
        total = Figures()
        for row in rows:
            total.add(row)
        total.cost = round(total.cost, 9)
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
    """The routes of this gateway's index; each gateway has its own."""
    routes = APIRouter(prefix="/v1/index", tags=["index"])

    @routes.get("", summary="What is in this gateway's index", responses=openapi.answers(IndexState))
    async def get_index() -> Response:
        async with answer_deadline():
            return json_answer(await rebuilder.state())

    @routes.post(
        "/rebuild",
        summary="Make the index anew from the journals",
        status_code=202,
        responses=openapi.answers(IndexRebuild, 202),
    )
    async def post_rebuild() -> Response:
        """The gateway serves its lists as they are meanwhile; `GET /v1/index` tells how far it has come."""
        return json_answer(await rebuilder.begin(), 202)

    return routes
