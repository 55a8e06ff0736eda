"""What the headers of a request ask for, and those by which a browser tells that another site's page asked."""

import re

from fastapi import Request
from starlette.datastructures import Headers

from cadre_gateway.requests.problems import Problem

MAX_WAIT_SECONDS = 600.0

MAX_SEQ = 2**53 - 1
"""The greatest sequence of a stream: JSON has no greater whole numbers."""

_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)


async def own_origin(request: Request) -> None:
    """Raises a 403 problem for a request that a browser makes for another site's page: any page can reach a gateway on
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
    """Whether a browser says that a page of this gateway asks; who says nothing is no browser, or an old one."""
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
    """Seconds that the header `Prefer` (RFC 7240) names to wait for the result, at most MAX_WAIT_SECONDS; 0 without."""
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
    """The header's text: headers arrive as Latin-1, and proxies write names in UTF-8 into them."""
    try:
        return header.encode("latin-1").decode() if header else header
    except UnicodeDecodeError:
        return header
