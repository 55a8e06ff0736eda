"""The doors that are open: their routes, and those that listen elsewhere than at HTTP. A door is imported only then."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from fastapi import APIRouter
from fastapi.routing import APIRoute

from cadre.errors import SetupError
from cadre.service.platform import Platform
from cadre.telemetry.metrics.meters import Meters
from cadre_gateway.access.gate import Access
from cadre_gateway.doors.door_meter import count_from_zero
from cadre_gateway.doors.sender import RunService

_DESCRIPTIONS = "/.well-known/"
"""In the paths that tell of a door and are not counted."""


class ListeningDoor(Protocol):
    """A door that waits for its callers by itself."""

    def begin(self) -> None:
        """Lets callers in from now on."""

    async def drain(self, grace: float) -> None:
        """Ends; answers under way have `grace` seconds to be told so."""


def routers_of(doors: Collection[str], runs: RunService, meters: Meters) -> list[APIRouter]:
    """The routes of these doors, which all speak through the same service; their counts begin."""
    found = []
    for door, router in _routers(doors, runs):
        found.append(router)
        paths = {route.path for route in router.routes if isinstance(route, APIRoute)}
        for path in sorted(path for path in paths if _DESCRIPTIONS not in path):
            count_from_zero(meters, door, path)
    return found


def _routers(doors: Collection[str], runs: RunService) -> Iterator[tuple[str, APIRouter]]:
    if "openai" in doors:
        from cadre_gateway.doors.openai import door

        yield "openai", door.router(runs)
    if "a2a" in doors:
        from cadre_gateway.doors.a2a import door as a2a

        yield "a2a", a2a.router(runs)
    if "agui" in doors:
        from cadre_gateway.doors.agui import door as agui

        yield "agui", agui.router(runs)
    if "mcp" in doors:
        try:
            from cadre_gateway.doors.mcp import door as mcp_door
        except ModuleNotFoundError as error:
            raise _missing("mcp", error) from error
        yield "mcp", mcp_door.router(runs)


def listening_doors(
    doors: Collection[str], runs: RunService, access: Access, platform: Platform
) -> list[ListeningDoor]:
    """Those of these doors that are not at HTTP. Raises SetupError."""
    if "synadia" not in doors:
        return []
    try:
        from cadre_gateway.doors.synadia.door import SynadiaDoor
    except ModuleNotFoundError as error:
        raise _missing("synadia", error) from error
    return [SynadiaDoor(runs, access, platform)]


def _missing(door: str, error: ModuleNotFoundError) -> SetupError:
    return SetupError(
        f"CADRE_DOORS names {door} and the Python module {error.name!r} is not installed: install"
        f" 'cadre-agents[{door}]', or leave it out"
    )
