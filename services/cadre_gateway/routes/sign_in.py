"""The HTTP routes by which people sign in: how they may, and the way to an OpenID provider and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from cadre.api.access import SignInWays
from cadre.errors import RetryableError
from cadre_gateway.access.gate import Access, cookie_of
from cadre_gateway.requests.problems import Problem, answer_deadline, as_problem
from cadre_gateway.routes import openapi
from cadre_gateway.routes.access import set_cookie
from cadre_gateway.routes.answers import json_answer

if TYPE_CHECKING:
    from cadre_gateway.access.oidc.sign_in import ConsoleSignIn

LOGIN = "/auth/login"


def router(ways: SignInWays) -> APIRouter:
    """The route by which a browser learns how people may sign in."""
    routes = APIRouter(prefix="/v1", tags=["access"])

    @routes.get("/sign-in", summary="How people may sign in", responses=openapi.answers(SignInWays))
    async def get_sign_in() -> Response:
        """With an API key by `POST /v1/session`, or at an OpenID provider whose page `login` leads to."""
        return json_answer(ways)

    return routes


def provider_router(sign_in: ConsoleSignIn, access: Access) -> APIRouter:
    """The way to the provider and back: for browsers alone, so the API's description does not have it."""
    from cadre_gateway.access.oidc.sign_in import CALLBACK, FLOW_SECONDS, Callback, as_page

    routes = APIRouter(include_in_schema=False)

    def cookie_name(request: Request) -> str:
        # Browsers let no neighbouring host set a cookie whose name begins so.
        return "__Host-cadre_sign_in" if access.is_https(request) else "cadre_sign_in"

    def origin(request: Request) -> str:
        return f"{request.url.scheme}://{request.url.netloc}"

    def failed(error: Exception) -> Response:
        problem = as_problem(error)
        return HTMLResponse(as_page(problem), problem.status)

    @routes.get(LOGIN)
    async def get_login(request: Request, return_to: str = "/") -> Response:
        try:
            async with answer_deadline():
                address, cookie = await sign_in.begin(origin(request), return_to)
        except (RetryableError, TimeoutError) as error:
            return failed(error)
        answer = RedirectResponse(address, 303)
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
        answer.delete_cookie(
            cookie_name(request), httponly=True, samesite="lax", secure=access.is_https(request)
        )
        return answer

    return routes
