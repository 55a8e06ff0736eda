"""The HTTP routes of the index of runs."""

from fastapi import APIRouter
from fastapi.responses import Response

from cadre.api.index import IndexRebuild, IndexState
from cadre_gateway.rebuild import IndexRebuilder
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer


def router(rebuilder: IndexRebuilder) -> APIRouter:
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
