"""The Model Context Protocol: agents as tools, which other programs' models call."""

from cadre_gateway.access.rules import rules_of_path
from cadre_gateway.doors.declaration import Door

DOOR = Door(
    name="mcp",
    router="cadre_gateway.doors.mcp.door:router",
    about="Agents as tools of the Model Context Protocol: /mcp",
    specification="https://modelcontextprotocol.io/specification/",
    # What a message asks for is held to the caller by the door, tool by tool.
    rules=rules_of_path("/mcp", "handler", get="read", post="read", delete="read"),
    actions={"POST /mcp": "mcp.call"},
)
