"""Counts what a door is asked for, and what it refuses."""

from fastapi import Request

from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.requests.problems import Problem

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
"""The refusals that somebody watches for: these begin at 0, a rarer one with the first that comes."""


def count_request(request: Request, door: str, route: str, problem: Problem | None) -> None:
    """Counts one request at the door; `problem` is why it was refused."""
    meters: Meters = request.app.state.meters
    count(meters, door, route, problem.code if problem is not None else "")


def count_from_zero(meters: Meters, door: str, route: str) -> None:
    """Begins the counts of a route, so that the first request and the first refusal are an increase."""
    for refusal in ("", *FIRST_REFUSALS):
        count(meters, door, route, refusal, 0)


def count(meters: Meters, door: str, route: str, refusal: str, requests: int = 1) -> None:
    """Counts requests that came to one end; `refusal` is the problem's code."""
    attributes = {names.DOOR: door, names.ROUTE: route}
    if refusal:
        attributes[names.ERROR_TYPE] = refusal
    meters.record(names.DOOR_REQUESTS, requests, attributes)
