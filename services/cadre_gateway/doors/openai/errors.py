"""Errors in OpenAI's form, and the route that answers with them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from cadre_gateway.doors.door_meter import count_request
from cadre_gateway.doors.openai.response_object import response_id
from cadre_gateway.doors.progress import Place
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_CODES = {
    "unknown-agent": "model_not_found",
    "unknown-run": "response_not_found",
    "budget-exhausted": "insufficient_quota",
    "capacity": "rate_limit_exceeded",
}
_WORTH_A_RETRY = frozenset(
    {"session-busy", "bus-unavailable", "busy", "draining", "reading-busy", "capacity"}
)
_UNPROCESSABLE = 422
_SERVER_ERROR = 500


def error_of(problem: Problem) -> dict[str, Any]:
    """The `error` object of a problem."""
    kind = "server_error" if problem.status >= _SERVER_ERROR else "invalid_request_error"
    return {
        "message": problem.detail,
        "type": _TYPES.get(problem.status, kind),
        "param": problem.more.get("field"),
        "code": _CODES.get(problem.code, problem.code.replace("-", "_")),
    }


def refusal(problem: Problem) -> Response:
    """The answer that is the problem. OpenAI has 400 for what it cannot use; its clients try nothing again that would
    be refused again."""
    status = 400 if problem.status == _UNPROCESSABLE else problem.status
    headers = {**problem.headers, "x-should-retry": "true" if problem.code in _WORTH_A_RETRY else "false"}
    content = msgspec.json.encode({"error": error_of(problem)})
    return Response(content, status, headers, media_type="application/json")


def answer_changed(place: Place) -> Problem:
    """What was told of the answer cannot be taken back."""
    return Problem(
        500,
        "answer-changed",
        "what was told so far is no part of the answer: that call of the model came to nothing, and run"
        f" {place.run} has answered otherwise; the whole answer: GET /v1/responses/{response_id(place)}",
    )


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_form(request: Request) -> Response:
            problem = None
            try:
                answer = await handle(request)
            except FORESEEN as error:
                problem = as_problem(error)
                answer = refusal(problem)
            count_request(request, "openai", self.path, problem)
            return answer

        return handle_in_form
