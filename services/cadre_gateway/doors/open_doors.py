"""The doors that are open: their routes, and those that listen elsewhere than at HTTP. A door is imported only then."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

from fastapi import APIRouter
from fastapi.routing import APIRoute

from cadre.errors import SettingError, SetupError
from cadre.service.platform import Platform
from cadre.settings import read_doors
from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.access.audit import ACTIONS
from cadre_gateway.access.gate import Access
from cadre_gateway.access.rules import RULES, RouteRule, RouteRules
from cadre_gateway.doors.answers import count_from_zero
from cadre_gateway.doors.declaration import GROUP, Door
from cadre_gateway.doors.sender import RunService

_DESCRIPTIONS = "/.well-known/"
"""In the paths that tell of a door and are not counted."""


class ListeningDoor(Protocol):
    """A door that waits for its callers itself."""

    def begin(self) -> None:
        """Let callers in from now on."""

    async def drain(self, grace: float) -> None:
        """End; answers under way have `grace` seconds to report that."""


_BUILT_IN = ("openai", "a2a", "agui", "mcp", "synadia")


def built_in_doors() -> list[Door]:
    """Return the doors that come with Cadre."""
    return [import_module(f"cadre_gateway.doors.{name}").DOOR for name in _BUILT_IN]


def open_doors() -> list[Door]:
    """Return the doors that CADRE_DOORS names: those of Cadre, and those of the entry points `cadre.doors` of
    other distributions. Raise SettingError for a name that no door has, SetupError for an entry point of such a name
    that cannot be loaded, or is no door of its name."""
    names, others = read_doors(), {entry.name: entry.value for entry in entry_points(group=GROUP)}
    if unknown := sorted(names - {*_BUILT_IN, *others}):
        there = ", ".join([*_BUILT_IN, *sorted(others.keys() - {*_BUILT_IN})])
        raise SettingError(f"CADRE_DOORS={unknown[0]}: this installation has no such door; there are: {there}, or none")
    return [
        *(door for door in built_in_doors() if door.name in names),
        *(_declared(name, others[name]) for name in sorted(names - {*_BUILT_IN})),
    ]


def _declared(name: str, where: str) -> Door:
    door = _loaded(name, where)
    if not isinstance(door, Door) or door.name != name:
        raise SetupError(f"{where} is not the Door {name!r}, as its entry point says: rename one of them")
    return door


def rules_with(doors: Iterable[Door]) -> RouteRules:
    """Return the rules of the gateway's own routes with those of the doors that come with Cadre, open or not, and of
    `doors`. Raise SetupError for a door that has a rule for a route that belongs to the gateway or another door, or
    names an action for a route without a rule."""
    rules, actions = [*RULES], {**ACTIONS}
    known = {_shape(rule) for rule in rules}
    for door in {door.name: door for door in (*built_in_doors(), *doors)}.values():
        own = {_shape(rule) for rule in door.rules}
        if taken := sorted(known & own):
            raise SetupError(
                f"the door {door.name} has a rule for {taken[0]}, which is another's route: change its path"
            )
        if strange := sorted(door.actions.keys() - {f"{rule.method} {rule.path}" for rule in door.rules}):
            raise SetupError(f"the door {door.name} records {strange[0]}, for which it has no rule: add one")
        known |= own
        rules += door.rules
        actions |= door.actions
    return RouteRules(rules, actions)


def routers_of(doors: Iterable[Door], runs: RunService, meters: Meters) -> list[APIRouter]:
    """Return the routes of these doors, which all speak through the same service; their counts begin. Raise SetupError
    for a door with a route that has no rule."""
    found = []
    for door in doors:
        if not door.router:
            continue
        router: APIRouter = _loaded(door.name, door.router)(runs)
        _check_rules(door, router)
        found.append(router)
        paths = {route.path for route in router.routes if isinstance(route, APIRoute)}
        for path in sorted(path for path in paths if _DESCRIPTIONS not in path):
            count_from_zero(meters, door.name, path)
    return found


def described(doors: Iterable[Door]) -> list[dict[str, Any]]:
    """Return a tag of the API's description for each door at HTTP that says what it is."""
    return [
        {"name": door.name, "description": door.about, "externalDocs": {"url": door.specification}}
        for door in doors
        if door.about and door.specification
    ]


def listening_doors(doors: Iterable[Door], runs: RunService, access: Access, platform: Platform) -> list[ListeningDoor]:
    """Return the doors that do not use HTTP. Raises SetupError."""
    return [_loaded(door.name, door.listens)(runs, access, platform) for door in doors if door.listens]


def _check_rules(door: Door, router: APIRouter) -> None:
    ruled = {_shape(rule) for rule in door.rules}
    for method, path in _routes(router):
        if (shape := _shape(RouteRule(method, path, "administer", "all"))) not in ruled:
            raise SetupError(f"the door {door.name} has no rule for its route {shape}: add one to its declaration")


def _routes(router: APIRouter) -> Iterator[tuple[str, str]]:
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield from ((method, route.path) for method in sorted(route.methods or ()))


def _shape(rule: RouteRule) -> str:
    """Return the route without the names of its variables: two of one shape take the same requests."""
    return f"{rule.method} {re.sub(r'{[^}]*}', '{}', rule.path)}"


def _loaded(door: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        extra = f"'cadre-agents[{door}]'" if door in _BUILT_IN else "what its distribution needs"
        raise SetupError(
            f"CADRE_DOORS names {door} and the Python module {error.name!r} is not installed: install"
            f" {extra}, or leave it out"
        ) from error
    except AttributeError as error:
        raise SetupError(f"{name}: the module of the door {door} has no {attribute!r}") from error
