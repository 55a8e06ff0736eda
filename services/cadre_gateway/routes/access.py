"""The HTTP routes of keys and of sign-ins with a browser."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.api.access import Identity, KeyView, MadeKey
from cadre_gateway.access.api_keys import ApiKeys, KeyBody
from cadre_gateway.access.caller import ANYBODY, Caller, caller_of
from cadre_gateway.access.gate import COOKIE, Access, cookie_of, unauthorized
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer


class KeyList(msgspec.Struct):
    """All keys, those first that were made first."""

    keys: list[KeyView]


_MAKE = openapi.operation(KeyBody, {"201": ("Made; its token is shown this once", MadeKey)})


def router(keys: ApiKeys, access: Access) -> APIRouter:
    """The routes of keys and sign-ins."""
    routes = APIRouter(prefix="/v1", tags=["access"])

    @routes.get("/keys", summary="All keys", responses=openapi.answers(KeyList))
    async def get_keys() -> Response:
        async with answer_deadline():
            return json_answer(KeyList(await keys.list()))

    @routes.post("/keys", summary="Make a key", status_code=201, openapi_extra=_MAKE)
    async def post_key(request: Request) -> Response:
        """201 with the key and its token, which is kept nowhere."""
        wanted = body.parse(await body.read(request), KeyBody)
        async with answer_deadline():
            made = await keys.make(wanted, caller_of(request).name)
        return json_answer(made, 201)

    @routes.delete("/keys/{id}", summary="Revoke a key", responses=openapi.answers(KeyView))
    async def delete_key(id: str) -> Response:
        """It counts no more at this gateway, and within seconds at no other; streams that it opened end."""
        async with answer_deadline():
            return json_answer(await keys.revoke(id))

    async def signed_in(request: Request) -> Caller:
        async with answer_deadline():
            caller = await access.caller(request.headers)
        if caller is None:
            raise unauthorized("nobody is signed in: POST /v1/session with `Authorization: Bearer KEY`")
        return caller

    @routes.get("/session", summary="Who asks", responses=openapi.answers(Identity))
    async def get_session(request: Request) -> Response:
        """401 when the gateway wants to know and is not told."""
        return json_answer((await signed_in(request)).identity())

    @routes.post("/session", summary="Sign in with a browser", responses=openapi.answers(Identity))
    async def post_session(request: Request) -> Response:
        """With `Authorization: Bearer KEY`: answers with a cookie that stands for the key, for twelve hours. A cookie
        that the browser had before ends, so that nobody else's sign-in lives on in it."""
        if "authorization" not in request.headers and access.keys is not None:
            raise unauthorized("sign in with `Authorization: Bearer KEY`")
        caller = await signed_in(request)
        answer = json_answer(caller.identity())
        if caller is not ANYBODY:
            async with answer_deadline():
                await keys.sign_out(cookie_of(request.headers))
                made = await keys.sign_in(caller)
            set_cookie(request, answer, made)
        return answer

    @routes.delete("/session", summary="Sign out of the browser", status_code=204, response_class=Response)
    async def delete_session(request: Request) -> Response:
        async with answer_deadline():
            await keys.sign_out(cookie_of(request.headers))
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    return routes


def set_cookie(request: Request, answer: Response, made: MadeKey) -> None:
    """Gives the browser its sign-in: no script reads it, and no other site's page has it sent."""
    assert made.expires_at is not None
    answer.set_cookie(
        COOKIE,
        made.token,
        max_age=max(1, int(made.expires_at - made.made_at)),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
