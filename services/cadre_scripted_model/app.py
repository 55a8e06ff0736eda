"""The HTTP surface: chat completions, embeddings and models as OpenAI has them, the script's journal and reset."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cadre_scripted_model import embeddings
from cadre_scripted_model.paced_response import HONESTY
from cadre_scripted_model.replies import error_body, model_list
from cadre_scripted_model.request import BadRequest, RequestView, read_request
from cadre_scripted_model.request_log import Journal, Line
from cadre_scripted_model.script import ErrorReply


class Source(Protocol):
    """Where answers come from: a script, a recording upstream, or cassettes."""

    async def respond(self, view: RequestView, body: dict[str, Any], line: Line) -> Response:
        """The answer; it ends `line` in the journal when it has been sent."""
        ...

    def reset(self) -> None:
        """Forgets what was counted so far."""
        ...


def build_app(source: Source, journal: Journal) -> Starlette:
    async def chat(request: Request) -> Response:
        try:
            body = msgspec.json.decode(await request.body())
            view = read_request(body)
        except msgspec.DecodeError as error:
            return _error(ErrorReply(status=400, message=f"the body is not JSON: {error}"))
        except BadRequest as error:
            return _error(ErrorReply(status=400, message=str(error), param=error.param))
        line = journal.begin(view)
        try:
            return await source.respond(view, body, line)
        except BaseException:
            journal.end(line, "failed")
            raise

    async def embed(request: Request) -> Response:
        try:
            return _json(embeddings.answer(msgspec.json.decode(await request.body())))
        except msgspec.DecodeError as error:
            return _error(ErrorReply(status=400, message=f"the body is not JSON: {error}"))
        except BadRequest as error:
            return _error(ErrorReply(status=400, message=str(error), param=error.param))

    async def models(request: Request) -> Response:
        return _json(model_list())

    async def lines(request: Request) -> Response:
        try:
            seconds = float(request.query_params.get("settled", "0"))
        except ValueError:
            return _error(
                ErrorReply(status=400, message="settled must be a number of seconds", param="settled")
            )
        if seconds > 0 and not await journal.settled(seconds):
            return _error(ErrorReply(status=408, message=f"requests are still open after {seconds:g} s"))
        return _json(journal.lines())

    async def reset(request: Request) -> Response:
        source.reset()
        journal.clear()
        return _json({"status": "reset"})

    async def health(request: Request) -> Response:
        return _json({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/embeddings", embed, methods=["POST"]),
            Route("/v1/models", models),
            Route("/script/journal", lines),
            Route("/script/reset", reset, methods=["POST"]),
            Route("/healthz", health),
            Route("/readyz", health),
        ],
        exception_handlers={HTTPException: _unknown},
    )


async def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    paths = "POST /v1/chat/completions, POST /v1/embeddings, GET /v1/models, GET /script/journal, POST /script/reset"
    return _error(
        ErrorReply(status=status, message=f"no {request.method} {request.url.path} here; there is {paths}")
    )


def _error(error: ErrorReply) -> Response:
    return _json(error_body(error), error.status)


def _json(data: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status, HONESTY, "application/json")
