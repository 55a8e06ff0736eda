"""Read the headers and query parameters of a request: waits, positions, points in time, pages, and whose page asks.

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
from starlette.datastructures import Headers

from cadre.errors import SpecError
from cadre.spec.durations import checked_seconds
from cadre_gateway.requests import problems
from cadre_gateway.requests.problems import Problem, invalid

TIME = "Unix seconds, a date or time (of UTC unless it says otherwise), or so long ago: `90m`, `12h`, `7d`"

Moment = Annotated[str | None, Query(description=TIME)]

_UNIX = re.compile(r"\d+(\.\d+)?")
_AGO = re.compile(r"\d+(\.\d+)?[smhd]")

T = TypeVar("T")


async def known_parameters(request: Request) -> None:
    """Raise a 422 problem that names the unknown parameter and the ones there are, or the one that is given twice."""
    route = request.scope.get("route")
    known = dict(_parameters(route.dependant)) if isinstance(route, APIRoute) else {}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            there_are = f"known parameters: {', '.join(known)}" if known else "this path has none"
            raise problems.invalid(f"query.{name}: unknown parameter; {there_are}")
        if times > 1 and not known[name]:
            raise problems.invalid(f"query.{name}: it is there {times} times and has one value: ask once for each")


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the query parameters of a route and of its dependencies, each with whether it may be given again."""
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


MAX_WAIT_SECONDS = 600.0

MAX_SEQ = 2**53 - 1
"""The greatest sequence of a stream: JSON has no greater whole numbers."""

_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)


async def own_origin(request: Request) -> None:
    """Raise a 403 problem for a request that a browser makes for another site's page: any page can reach a gateway on
    the same machine. Programs send no such headers.

    A link to the gateway may be followed: the page with the link never sees the answer.
    """
    headers = request.headers
    follows_link = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if not follows_link and not _is_own(headers):
        raise Problem(
            403,
            "cross-origin",
            f"a web page of {headers.get('origin', 'another site')} asked, and only pages that this gateway's own"
            f" address ({headers.get('host', '?')}) serves may: let that site's server ask, or serve both under one"
            " address through a proxy that passes `Host` on",
        )


def is_own_page(headers: Headers) -> bool:
    """Return whether a browser says that a page of this gateway asks; a client that does not say so is not a browser,
    or is an old one."""
    site = headers.get("sec-fetch-site")
    return site == "same-origin" if site is not None else "origin" in headers and _is_own(headers)


def _is_own(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    # Browsers leave that out where the gateway is reached by plain HTTP under a name that is not the machine's own.
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def wait_seconds(prefer: str | None) -> float:
    """Return the seconds that the header `Prefer` (RFC 7240) names to wait for the result, at most MAX_WAIT_SECONDS; 0
    without."""
    for preference in (prefer or "").split(","):
        if found := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(float(found[1]), MAX_WAIT_SECONDS)
    return 0.0


def resume_position(last_event_id: str | None, after: int | None) -> int:
    """Sequence behind which an event stream goes on: Last-Event-ID, else `?after=`, else 0. Raises ValueError."""
    if last_event_id is None or not last_event_id.strip():
        return after or 0
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > len(str(MAX_SEQ)):
        raise ValueError(f"Last-Event-ID {last_event_id!r} is not one that this API gave")
    return int(last_event_id)


def utf8(header: str | None) -> str | None:
    """Return the header's text: headers arrive as Latin-1, and proxies write names in UTF-8 into them."""
    try:
        return header.encode("latin-1").decode() if header else header
    except UnicodeDecodeError:
        return header
