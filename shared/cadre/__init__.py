"""Teams of LLM agents as durable microservices over NATS.

    from cadre import Agent, AsyncClient, ToolContext, serve, tool

`@tool` makes a typed function a tool (served by `cadre tools FILE`), `serve(Agent(…))` serves an agent
(as `cadre agent FILE` does for a YAML file), `AsyncClient()` starts runs, follows them and decides on their calls.
The other public modules are `cadre.tool`, `cadre.client`, `cadre.events`, `cadre.protocol` and `cadre.testing`
(docs/python.md); all else is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cadre.errors import CadreError, SetupError
from cadre.spec.agent import AgentSpec as Agent
from cadre.spec.agent import Limits, Selector
from cadre.spec.model import ModelSpec
from cadre.tool import File, ToolContext, tool

if TYPE_CHECKING:
    from cadre.client import AsyncClient, Client, follow, new_runs
    from cadre.service.agent import serve

__version__ = "1.0.0"

__all__ = [
    "Agent",
    "AsyncClient",
    "CadreError",
    "Client",
    "File",
    "Limits",
    "ModelSpec",
    "Selector",
    "SetupError",
    "ToolContext",
    "follow",
    "new_runs",
    "serve",
    "tool",
]


def __getattr__(name: str) -> Any:
    # A module that only defines tools does not load NATS and an HTTP server.
    if name == "serve":
        from cadre.service.agent import serve

        return serve
    if name in ("AsyncClient", "Client", "follow", "new_runs"):
        from cadre import client

        return getattr(client, name)
    raise AttributeError(f"module 'cadre' has no attribute {name!r}")
