"""Read query parameters: points in time, pages, and their names.

A parameter that the route does not have, or that is given twice, is refused: a filter would be silently ignored.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, TypeVar, get_args, get_origin

from fastapi import Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from cadre.errors import SpecError
from cadre.spec.durations import checked_seconds
from cadre_gateway.requests import problems
from cadre_gateway.requests.problems import invalid

TIME = "Unix seconds, a date or time (of UTC unless it says otherwise), or so long ago: `90m`, `12h`, `7d`"

Moment = Annotated[str | None, Query(description=TIME)]

_UNIX = re.compile(r"\d+(\.\d+)?")
_AGO = re.compile(r"\d+(\.\d+)?[smhd]")

T = TypeVar("T")


async def known_parameters(request: Request) -> None:
    """Raises a 422 problem that names the unknown parameter and the ones there are, or the one that is given twice."""
    route = request.scope.get("route")
    known = dict(_parameters(route.dependant)) if isinstance(route, APIRoute) else {}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            there_are = f"known parameters: {', '.join(known)}" if known else "this path has none"
            raise problems.invalid(f"query.{name}: unknown parameter; {there_are}")
        if times > 1 and not known[name]:
            raise problems.invalid(
                f"query.{name}: it is there {times} times and has one value: ask once for each"
            )


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """The query parameters of a route and of its dependencies, each with whether it may be given again."""
    for field in dependant.query_params:
        yield field.alias, _is_list(field.field_info.annotation)
    for below in dependant.dependencies:
        yield from _parameters(below)


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(get_origin(one) is list for one in get_args(annotation))


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


def page_of(items: Iterable[T], limit: int) -> tuple[list[T], T | None]:
    """At most `limit` items, and the last of them when more follow."""
    found = list(islice(items, limit + 1))
    return found[:limit], found[limit - 1] if len(found) > limit else None
