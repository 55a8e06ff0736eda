"""Answers as JSON, and the headers that all answers have."""

from typing import Any

import msgspec
from fastapi.responses import Response

from cadre_gateway.doors.progress import Place
from cadre_gateway.requests.trace_link import trace_headers


def json_answer(value: Any, status: int = 200) -> Response:
    """The value as the body of an answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def run_headers(place: Place) -> dict[str, str]:
    """Headers that say which run answers, and its trace."""
    return {"X-Cadre-Run": place.run, **trace_headers(place.run)}
