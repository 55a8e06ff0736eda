"""Refuses query parameters that a route does not have, or has once and is given twice: a filter would go unnoticed."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from cadre_gateway.requests import problems


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
