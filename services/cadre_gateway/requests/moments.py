"""Points in time as people write them in a query."""

import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query

from cadre.errors import SpecError
from cadre.spec.durations import checked_seconds
from cadre_gateway.requests.problems import invalid

TIME = "Unix seconds, a date or time (of UTC unless it says otherwise), or so long ago: `90m`, `12h`, `7d`"

Moment = Annotated[str | None, Query(description=TIME)]

_UNIX = re.compile(r"\d+(\.\d+)?")
_AGO = re.compile(r"\d+(\.\d+)?[smhd]")


def bounds(since: str | None, until: str | None, now: float) -> tuple[float | None, float | None]:
    """Unix seconds of the parameters `since` and `until`, None for one that was not given. Raises a 422 problem."""
    return (
        moment("since", since, now) if since is not None else None,
        moment("until", until, now) if until is not None else None,
    )


def moment(key: str, written: str, now: float) -> float:
    """Unix seconds of a time as people write it in the parameter `key`. Raises a 422 problem."""
    if _UNIX.fullmatch(written):
        return float(written)
    if _AGO.fullmatch(written):
        try:
            return now - checked_seconds(key, written)
        except SpecError as error:
            raise invalid(str(error)) from error
    try:
        # A `+` that was not encoded has become a space.
        found = datetime.fromisoformat(written.strip().replace(" ", "+") if "T" in written else written)
    except ValueError as error:
        raise invalid(f"{key}: {written!r}: write {TIME}") from error
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
