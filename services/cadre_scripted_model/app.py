"""Serve OpenAI's paths for chat completions, responses, embeddings and models, and the script's own paths."""

import base64
import functools
import hashlib
import math
import re
import struct
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cadre_scripted_model import MODEL_ID
from cadre_scripted_model.replies import NOT_AN_AI_HEADERS, PacedResponse, error_body, model_list
from cadre_scripted_model.request import BadRequest, ErrorReply, RequestView, read_request
from cadre_scripted_model.request_log import LogLine, RequestLog
from cadre_scripted_model.responses import read_responses_request


class ReplySource(Protocol):
    """A source of answers: a script, a recording upstream, or cassettes."""

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Return the answer, and write into `line` the rule that it came from."""
        ...

    def reset(self) -> None:
        """Forget which answers were given so far."""
        ...

    def release(self) -> None:
        """Have answers go out that are held."""
        ...


def build_app(source: ReplySource, log: RequestLog) -> Starlette:
    """Return the server that answers from `source` and records in `log` what it was asked."""

    async def chat(request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        return await answered(read_request(body), body)

    async def responses(request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        return await answered(read_responses_request(body), body)

    async def answered(view: RequestView, body: dict[str, Any]) -> Response:
        line = log.begin(view)
        try:
            response = await source.respond(view, body, line)
        except BaseException:
            log.end(line, "failed")
            raise
        response.on_end = functools.partial(log.end, line)
        return response

    async def embed(request: Request) -> Response:
        return _json(answer(msgspec.json.decode(await request.body())))

    async def models(request: Request) -> Response:
        return _json(model_list())

    async def lines(request: Request) -> Response:
        try:
            seconds = float(request.query_params.get("settled", "0"))
        except ValueError:
            return _error(ErrorReply(status=400, message="settled must be a number of seconds", param="settled"))
        if seconds > 0 and not await log.settled(seconds):
            return _error(ErrorReply(status=408, message=f"requests are still open after {seconds:g} s"))
        return _json(log.lines())

    async def reset(request: Request) -> Response:
        source.reset()
        log.clear()
        return _json({"status": "reset"})

    async def release(request: Request) -> Response:
        source.release()
        return _json({"status": "released"})

    async def health(request: Request) -> Response:
        return _json({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/responses", responses, methods=["POST"]),
            Route("/v1/embeddings", embed, methods=["POST"]),
            Route("/v1/models", models),
            Route("/script/journal", lines),
            Route("/script/reset", reset, methods=["POST"]),
            Route("/script/release", release, methods=["POST"]),
            Route("/healthz", health),
            Route("/readyz", health),
        ],
        exception_handlers={
            HTTPException: _unknown,
            msgspec.DecodeError: _not_json,
            BadRequest: _bad_request,
        },
    )


async def _not_json(request: Request, error: Exception) -> Response:
    return _error(ErrorReply(status=400, message=f"the body is not JSON: {error}"))


async def _bad_request(request: Request, error: Exception) -> Response:
    return _error(ErrorReply(status=400, message=str(error), param=getattr(error, "param", None)))


async def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    paths = (
        "POST /v1/chat/completions, POST /v1/responses, POST /v1/embeddings, GET /v1/models,"
        " GET /script/journal, POST /script/reset, POST /script/release"
    )
    return _error(ErrorReply(status=status, message=f"no {request.method} {request.url.path} here; there is {paths}"))


def _error(error: ErrorReply) -> Response:
    return _json(error_body(error), error.status)


def _json(data: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status, NOT_AN_AI_HEADERS, "application/json")


DIMENSIONS = 64
_MAX_DIMENSIONS = 4096

_WORD = re.compile(r"\w+")


def answer(body: object) -> dict[str, Any]:
    """Return the answer to a request for embeddings. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    texts = _texts(body.get("input"))
    dimensions = body.get("dimensions") or DIMENSIONS
    if not isinstance(dimensions, int) or not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise BadRequest(f"dimensions must be from 1 to {_MAX_DIMENSIONS}", "dimensions")
    form = body.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise BadRequest("encoding_format must be float or base64", "encoding_format")
    vectors = [vector(text, dimensions) for text in texts]
    words = sum(len(_WORD.findall(text)) for text in texts)
    return {
        "object": "list",
        "model": str(body.get("model") or MODEL_ID),
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(one) if form == "base64" else one}
            for index, one in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": words, "total_tokens": words},
    }


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Return the text's vector, which has length 1."""
    total = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [""]:
        digest = hashlib.shake_128(word.encode()).digest(dimensions)
        for place, byte in enumerate(digest):
            total[place] += byte - 127.5
    length = math.sqrt(sum(number * number for number in total))
    return [number / length for number in total]


def _texts(given: object) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise BadRequest("input must be a text, or a list of texts, none of them empty", "input")
    return texts


def _encoded(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
