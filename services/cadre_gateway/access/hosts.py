"""By which names the gateway may be called: no web page makes a name of its own out of a private address."""

import ipaddress
import re

from starlette.datastructures import Headers

from cadre_gateway.requests.problems import Problem

_PRIVATE = (".svc", ".cluster.local", ".localhost", ".internal", ".home.arpa")
"""Ends of names that nobody can have in the public DNS."""

_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^:\[\]/@]+)(?::\d{1,5})?", re.IGNORECASE)


def host_name(headers: Headers) -> str:
    """The name that a request is sent to, in lower case and without its port; "" for none."""
    found = _HOST.fullmatch(headers.get("host", ""))
    return found["host"].lower().rstrip(".") if found is not None else ""


def check_host(headers: Headers, allowed: frozenset[str]) -> None:
    """Raises a 421 problem for a `Host` that is neither an address, nor a private name, nor one of `allowed`.

    Where nobody is asked who they are, a name that an attacker points at the gateway's address (DNS rebinding) would
    have the pages of that name do here what they like.
    """
    written, name = headers.get("host", ""), host_name(headers)
    if not (name in allowed or is_private_name(name)):
        raise Problem(
            421,
            "unknown-host",
            f"this gateway is not called {written!r}: ask it by its address, or name that host in CADRE_ALLOWED_HOSTS",
        )


def is_private_name(name: str) -> bool:
    """Whether it is an address, or a name that nobody can have in the public DNS."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        # A name of one word is the machine's own, or one of the network that it is in.
        return bool(name) and ("." not in name or name.endswith(_PRIVATE))
    return True
