"""Counts what a door is asked for, and what it refuses."""

from fastapi import Request

from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.requests.problems import Problem


def count_request(request: Request, door: str, route: str, problem: Problem | None) -> None:
    """Counts one request at the door; `problem` is why it was refused."""
    attributes = {names.DOOR: door, names.ROUTE: route}
    if problem is not None:
        attributes[names.ERROR_TYPE] = problem.code
    meters: Meters = request.app.state.meters
    meters.record(names.DOOR_REQUESTS, 1, attributes)
