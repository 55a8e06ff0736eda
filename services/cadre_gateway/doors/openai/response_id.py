"""Ids of responses: the run, and where in its journal the response begins."""

import re

from cadre_gateway.doors.progress import Place
from cadre_gateway.requests.problems import Problem

_ID = re.compile(r"resp_([A-Za-z0-9-]{1,64})(?:_([1-9]\d{0,15}))?")


def response_id(place: Place) -> str:
    """The id of the response that begins there."""
    return f"resp_{place.run}_{place.after}" if place.after else f"resp_{place.run}"


def place_of_response(given: str) -> Place:
    """Where the response with this id begins. Raises a 404 problem for what is no id of a response."""
    found = _ID.fullmatch(given)
    if found is None:
        raise Problem(404, "unknown-run", f"there is no response {given!r}")
    return Place(found[1], int(found[2] or 0))
