"""Answer requests at a door as JSON, with headers that name the run, and count requests and refusals."""

from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response

from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.doors.progress import Place
from cadre_gateway.requests.problems import Problem
from cadre_gateway.requests.trace_link import trace_headers

FIRST_REFUSALS = (
    "invalid-request",
    "not-json",
    "unknown-agent",
    "unknown-run",
    "forbidden",
    "rate-limited",
    "session-busy",
    "capacity",
    "budget-exhausted",
    "busy",
    "bus-unavailable",
    "index-unavailable",
    "draining",
    "too-large",
)
"""The refusals that are monitored: these begin at 0, a rarer one with its first occurrence."""


def count_request(request: Request, door: str, route: str, problem: Problem | None) -> None:
    """Count one request at the door; `problem` is why it was refused."""
    meters: Meters = request.app.state.meters
    count(meters, door, route, problem.code if problem is not None else "")


def count_from_zero(meters: Meters, door: str, route: str) -> None:
    """Begin the counts of a route, so that the first request and the first refusal are an increase."""
    for refusal in ("", *FIRST_REFUSALS):
        count(meters, door, route, refusal, 0)


def count(meters: Meters, door: str, route: str, refusal: str, requests: int = 1) -> None:
    """Count requests that came to one end; `refusal` is the problem's code."""
    attributes = {names.DOOR: door, names.ROUTE: route}
    if refusal:
        attributes[names.ERROR_TYPE] = refusal
    meters.record(names.DOOR_REQUESTS, requests, attributes)


def json_answer(value: Any, status: int = 200) -> Response:
    """Return the value as the body of an answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def run_headers(place: Place) -> dict[str, str]:
    """Return the headers that say which run answers, and its trace."""
    return {"X-Cadre-Run": place.run, **trace_headers(place.run)}
