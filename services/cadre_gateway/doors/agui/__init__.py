"""The AG-UI protocol: what an agent and its team do, as the events of a user interface."""

from cadre_gateway.access.rules import rules_of_path
from cadre_gateway.doors.declaration import Door

DOOR = Door(
    name="agui",
    router="cadre_gateway.doors.agui.door:router",
    about="Agents for user interfaces: POST /agui/{agent}",
    specification="https://docs.ag-ui.com/",
    rules=rules_of_path("/agui/{agent}", "handler", post="act"),
    actions={"POST /agui/{agent}": "chat.turn"},
)
