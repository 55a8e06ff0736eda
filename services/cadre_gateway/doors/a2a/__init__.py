"""The A2A protocol: each agent at its own address, a run as a task that any gateway reports on."""

from cadre_gateway.access.rules import rules_of_path
from cadre_gateway.doors.declaration import Door

DOOR = Door(
    name="a2a",
    router="cadre_gateway.doors.a2a.door:router",
    about="Agents for A2A's clients: cards at /a2a, each agent at /a2a/{agent}",
    specification="https://a2a-protocol.org/latest/specification/",
    # What the body names is held to the caller by the door, which asks for it by id.
    rules=(
        *rules_of_path("/.well-known/agent-card.json", "none", get="read"),
        *rules_of_path("/a2a", "none", get="read"),
        *rules_of_path("/a2a/{agent}", "handler", post="act"),
        *rules_of_path("/a2a/{agent}/", "handler", post="act"),
        *rules_of_path("/a2a/{agent}/message:send", "handler", post="act"),
        *rules_of_path("/a2a/{agent}/message:stream", "handler", post="act"),
        *rules_of_path("/a2a/{agent}/tasks", "handler", get="read"),
        *rules_of_path("/a2a/{agent}/tasks/{run}:cancel", "handler", post="act"),
        *rules_of_path("/a2a/{agent}/tasks/{run}:subscribe", "handler", get="read", post="read"),
        *rules_of_path("/a2a/{agent}/tasks/{run}", "handler", get="read"),
        *rules_of_path("/a2a/{agent}/tasks/{run}/pushNotificationConfigs", "handler", get="act", post="act"),
        *rules_of_path("/a2a/{agent}/tasks/{run}/pushNotificationConfigs/{push}", "handler", get="act", delete="act"),
        *rules_of_path("/a2a/{agent}/.well-known/agent-card.json", "none", get="read"),
        *rules_of_path("/a2a/.well-known/jwks.json", "none", get="public"),
    ),
    # A turn of a chat may be a person's word on a call.
    actions={
        "POST /a2a/{agent}": "chat.turn",
        "POST /a2a/{agent}/": "chat.turn",
        "POST /a2a/{agent}/message:send": "chat.turn",
        "POST /a2a/{agent}/message:stream": "chat.turn",
        "POST /a2a/{agent}/tasks/{run}:cancel": "run.cancel",
        "POST /a2a/{agent}/tasks/{run}/pushNotificationConfigs": "push.put",
        "DELETE /a2a/{agent}/tasks/{run}/pushNotificationConfigs/{push}": "push.delete",
    },
)
