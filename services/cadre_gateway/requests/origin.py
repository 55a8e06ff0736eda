"""Refuses requests of other sites' web pages: any page in a browser can reach a gateway on the same machine."""

from fastapi import Request
from starlette.datastructures import Headers

from cadre_gateway.requests.problems import Problem


async def own_origin(request: Request) -> None:
    """Raises a 403 problem for a request that a browser makes for another site's page. Programs send no such headers.

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


def _is_own(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    # Browsers leave that out where the gateway is reached by plain HTTP under a name that is not the machine's own.
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
