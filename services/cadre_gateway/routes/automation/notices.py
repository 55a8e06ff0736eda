"""The HTTP routes of notices: list, make, show, remove."""

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.api.automations import NoticeView
from cadre.automation.notice import KeptNotice, NoticeSpec
from cadre_gateway.access.principal import caller_of
from cadre_gateway.automation.definition_editor import DefinitionEditor
from cadre_gateway.automation.notices import Notices
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer
from cadre_gateway.routes.automation.schedules import spec_of

_PUT = openapi.operation(NoticeSpec, {"200": ("Made or replaced", NoticeView)})


class NoticeList(msgspec.Struct):
    """All notices, by name."""

    notices: list[NoticeView]


def router(notices: DefinitionEditor[KeptNotice], telling: Notices) -> APIRouter:
    """The routes of notices."""
    routes = APIRouter(prefix="/v1/notices", tags=["notices"])

    @routes.get("", summary="All notices, by name", responses=openapi.answers(NoticeList))
    async def get_notices() -> Response:
        async with answer_deadline():
            return json_answer(NoticeList([await telling.shown(one) for one in await notices.all()]))

    @routes.get("/{name}", summary="One notice", responses=openapi.answers(NoticeView))
    async def get_notice(name: str) -> Response:
        async with answer_deadline():
            return json_answer(await telling.shown(await notices.show(name)))

    @routes.put("/{name}", summary="Make or replace a notice", openapi_extra=_PUT)
    async def put_notice(name: str, request: Request) -> Response:
        spec = await spec_of(NoticeSpec, name, request)
        async with answer_deadline():
            return json_answer(await telling.put(caller_of(request), spec))

    @routes.delete("/{name}", summary="Remove a notice", status_code=204, response_class=Response)
    async def delete_notice(name: str) -> Response:
        """What is on its way is not delivered any more."""
        async with answer_deadline():
            await notices.remove(name)
        return Response(status_code=204)

    return routes
