"""The routes of the doors that are open. A door is imported only then."""

from __future__ import annotations

from collections.abc import Collection

from fastapi import APIRouter

from cadre.errors import SetupError
from cadre_gateway.doors.run_service import RunService


def routers_of(doors: Collection[str], runs: RunService) -> list[APIRouter]:
    """The routes of these doors, which all speak through the same service."""
    found = []
    if "openai" in doors:
        from cadre_gateway.doors.openai import door

        found.append(door.router(runs))
    if "a2a" in doors:
        from cadre_gateway.doors.a2a import door as a2a

        found.append(a2a.router(runs))
    if "agui" in doors:
        from cadre_gateway.doors.agui import door as agui

        found.append(agui.router(runs))
    if "mcp" in doors:
        try:
            from cadre_gateway.doors.mcp import door as mcp_door
        except ModuleNotFoundError as error:
            raise SetupError(
                f"CADRE_DOORS names mcp and the Python module {error.name!r} is not installed: install"
                " 'cadre-agents[mcp]', or leave it out"
            ) from error
        found.append(mcp_door.router(runs))
    return found
