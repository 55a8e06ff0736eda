"""Refuses query parameters that a route does not have: a misspelt filter would go unnoticed."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from cadre_gateway.requests import problems


async def known_parameters(request: Request) -> None:
    """Raises a 422 problem that names the unknown parameter and the ones there are."""
    route = request.scope.get("route")
    known = list(_parameters(route.dependant)) if isinstance(route, APIRoute) else []
    for name in request.query_params:
        if name not in known:
            there_are = f"known parameters: {', '.join(known)}" if known else "this path has none"
            raise problems.invalid(f"query.{name}: unknown parameter; {there_are}")


def _parameters(dependant: Dependant) -> Iterator[str]:
    """The query parameters of a route and of its dependencies."""
    for field in dependant.query_params:
        yield field.alias
    for below in dependant.dependencies:
        yield from _parameters(below)
