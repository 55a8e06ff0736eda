"""Serve the HTTP routes of keys, and of sign-ins with a browser or an OpenID provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from cadre.api.access import AuditView, Identity, KeyView, MadeKey, SignInWays
from cadre.errors import RetryableError
from cadre_gateway.access.api_keys import ApiKeys, KeyBody
from cadre_gateway.access.audit import AuditFilter, note
from cadre_gateway.access.gate import COOKIE, Access, cookie_of
from cadre_gateway.access.principal import ANYBODY, Principal, caller_of
from cadre_gateway.requests import body
from cadre_gateway.requests.parameters import MAX_SEQ, Moment, bounds, page_of
from cadre_gateway.requests.prefix import address
from cadre_gateway.requests.problems import Problem, answer_deadline, as_problem, unauthorized
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer

if TYPE_CHECKING:
    from cadre_gateway.access.sign_in import ConsoleSignIn

LOGIN = "/auth/login"


class KeyList(msgspec.Struct):
    """All keys, those first that were made first."""

    keys: list[KeyView]


class AuditPage(msgspec.Struct):
    """Entries of the audit trail, newest first."""

    entries: list[AuditView]
    next: int | None
    """`before` of the next page."""


_MAKE = openapi.operation(KeyBody, {"201": ("Made; its token is shown this once", MadeKey)})


def router(keys: ApiKeys, access: Access) -> APIRouter:
    """Return the routes of keys and sign-ins."""
    routes = APIRouter(prefix="/v1", tags=["access"])
    trail = access.trail

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
        note(request, key=made.id, name=made.name, user=made.user, roles=",".join(made.roles))
        return json_answer(made, 201)

    @routes.get("/audit", summary="What was done, and by whom", responses=openapi.answers(AuditPage))
    async def get_audit(  # noqa: PLR0913 - query parameters
        since: Moment = None,
        until: Moment = None,
        who: str | None = None,
        action: Annotated[str | None, Query(description="Such as run.cancel, or run for all of runs")] = None,
        target: Annotated[str | None, Query(description="A run, call, key, memory or name")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[int | None, Query(ge=1, le=MAX_SEQ)] = None,
    ) -> Response:
        """Decisions, cancels, erasures, forks, edits, messages, signals, exports, and changes of keys and automations;
        those that were refused too. Newest first."""
        begin, end = bounds(since, until, trail.clock.now())
        wanted = AuditFilter(
            since=begin,
            until=end,
            who=who,
            action=action,
            target=target,
        )
        async with answer_deadline():
            found, last = page_of(await trail.page(wanted, limit + 1, before), limit)
        return json_answer(AuditPage(found, last.id if last else None))

    @routes.delete("/keys/{id}", summary="Revoke a key", responses=openapi.answers(KeyView))
    async def delete_key(id: str) -> Response:
        """It counts no more at this gateway, and within seconds at no other; streams that it opened end."""
        async with answer_deadline():
            return json_answer(await keys.revoke(id))

    async def signed_in(request: Request) -> Principal:
        async with answer_deadline():
            caller = await access.identify(request.headers, request.client.host if request.client else "")
        if caller is None:
            raise unauthorized("no one is signed in: POST /v1/session with `Authorization: Bearer KEY`")
        return caller

    @routes.get("/session", summary="Who asks", responses=openapi.answers(Identity))
    async def get_session(request: Request) -> Response:
        """401 when the gateway requires a key and gets none."""
        return json_answer((await signed_in(request)).identity())

    @routes.post("/session", summary="Sign in with a browser", responses=openapi.answers(Identity))
    async def post_session(request: Request) -> Response:
        """With `Authorization: Bearer KEY`: answers with a cookie that stands for the key, for twelve hours. A cookie
        that the browser had before ends, so that no other person's sign-in lives on in it."""
        if "authorization" not in request.headers and access.keys is not None:
            raise unauthorized("sign in with `Authorization: Bearer KEY`")
        caller = await signed_in(request)
        if caller.account:
            # It would outlive what it was made with, and what a provider says of that.
            raise unauthorized("this is a sign-in already: sign in with the key")
        answer = json_answer(caller.identity())
        if caller is not ANYBODY:
            async with answer_deadline():
                await keys.sign_out(cookie_of(request.headers))
                made = await keys.sign_in(caller)
            set_cookie(request, answer, made, access)
        return answer

    @routes.delete("/session", summary="Sign out of the browser", status_code=204, response_class=Response)
    async def delete_session(request: Request) -> Response:
        async with answer_deadline():
            await keys.sign_out(cookie_of(request.headers))
        answer = Response(status_code=204)
        secure = access.is_https(request)
        answer.delete_cookie(COOKIE, address("/"), httponly=True, samesite="strict", secure=secure)
        return answer

    return routes


def set_cookie(request: Request, answer: Response, made: MadeKey, access: Access) -> None:
    """Give the browser its sign-in: no script reads it, and no other site's page has it sent."""
    assert made.expires_at is not None
    answer.set_cookie(
        COOKIE,
        made.token,
        max_age=max(1, int(made.expires_at - made.made_at)),
        path=address("/"),
        httponly=True,
        samesite="strict",
        secure=access.is_https(request),
    )


def sign_in_router(ways: SignInWays) -> APIRouter:
    """Return the route by which a browser learns how people may sign in."""
    routes = APIRouter(prefix="/v1", tags=["access"])

    @routes.get("/sign-in", summary="How people may sign in", responses=openapi.answers(SignInWays))
    async def get_sign_in() -> Response:
        """With an API key by `POST /v1/session`, or at an OpenID provider whose page `login` leads to."""
        return json_answer(msgspec.structs.replace(ways, login=address(ways.login)) if ways.login else ways)

    return routes


def provider_router(sign_in: ConsoleSignIn, access: Access) -> APIRouter:
    """Return the way to the provider and back: for browsers alone, so the API's description does not have it."""
    from cadre_gateway.access.sign_in import CALLBACK, FLOW_SECONDS, Callback, as_page

    routes = APIRouter(include_in_schema=False)

    def cookie_name(request: Request) -> str:
        # Browsers let no neighbouring host set a cookie whose name begins so.
        return "__Host-cadre_sign_in" if access.is_https(request) else "cadre_sign_in"

    def origin(request: Request) -> str:
        return f"{request.url.scheme}://{request.url.netloc}{address('')}"

    def failed(error: Exception) -> Response:
        problem = as_problem(error)
        return HTMLResponse(as_page(problem), problem.status)

    @routes.get(LOGIN)
    async def get_login(request: Request, return_to: str = "/") -> Response:
        try:
            async with answer_deadline():
                page, cookie = await sign_in.begin(origin(request), return_to)
        except (RetryableError, TimeoutError) as error:
            return failed(error)
        answer = RedirectResponse(page, 303)
        # `lax`: it comes along when the provider sends the browser back, which `strict` would not.
        answer.set_cookie(
            cookie_name(request),
            cookie,
            max_age=FLOW_SECONDS,
            httponly=True,
            samesite="lax",
            secure=access.is_https(request),
        )
        return answer

    @routes.get(CALLBACK)
    async def get_callback(request: Request, code: str = "", state: str = "", error: str = "") -> Response:
        answer: Response
        try:
            async with answer_deadline():
                cookie = cookie_of(request.headers, cookie_name(request))
                made, path = await sign_in.finish(origin(request), cookie, Callback(code, state, error))
                await sign_in.keys.sign_out(cookie_of(request.headers))
            answer = RedirectResponse(path, 303)
            set_cookie(request, answer, made, access)
        except (Problem, RetryableError, TimeoutError) as problem:
            answer = failed(problem)
            access.limits.check_stranger(request.client.host if request.client else "")
        answer.delete_cookie(cookie_name(request), httponly=True, samesite="lax", secure=access.is_https(request))
        return answer

    return routes
