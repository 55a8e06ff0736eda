"""Refuses query parameters that a route does not have: a misspelt filter would go unnoticed."""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute

from cadre_gateway import problems


async def known_parameters(request: Request) -> None:
    """Raises a 422 problem that names the unknown parameter and the ones there are."""
    route = request.scope.get("route")
    known = [field.alias for field in route.dependant.query_params] if isinstance(route, APIRoute) else []
    for name in request.query_params:
        if name not in known:
            there_are = f"known parameters: {', '.join(known)}" if known else "this path has none"
            raise problems.invalid(f"query.{name}: unknown parameter; {there_are}")
