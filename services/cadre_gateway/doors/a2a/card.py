"""An agent's card: what A2A's clients learn of it before they ask."""

from typing import Any

from cadre.protocol.a2a import MESSAGES_ONCE
from cadre.protocol.cards import AgentCard

VERSIONS = ("1.0", "0.3")
MODES = ["text/plain", "application/json"]


def card_of_agent(card: AgentCard, url: str, *, asks_who_calls: bool) -> dict[str, Any]:
    """The card of the agent that is reached at `url`, with nothing empty in it: what is may get lost on the way, and
    with it a signature."""
    interfaces = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for version in VERSIONS
    ]
    interfaces.insert(1, {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": VERSIONS[0]})
    tags = sorted({card.kind, *(f"{key}={value}" for key, value in card.labels.items())})
    skill = {"id": card.name, "name": card.name, "description": card.description, "tags": tags}
    found: dict[str, Any] = {
        "name": card.name,
        "description": card.description,
        "version": card.version or "0",
        "supportedInterfaces": interfaces,
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": False,
            "extensions": [{"uri": MESSAGES_ONCE, "description": "A message sent again finds its task."}],
        },
        "defaultInputModes": [*MODES, "image/*", "application/octet-stream"],
        "defaultOutputModes": MODES,
        "skills": [skill],
    }
    if asks_who_calls:
        found["securitySchemes"] = {"key": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        found["securityRequirements"] = [{"schemes": {"key": {"list": ["act"]}}}]
    return found


def for_older_clients(card: dict[str, Any], url: str) -> dict[str, Any]:
    """The card with what clients of version 0.3 look for."""
    return {**card, "url": url, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
