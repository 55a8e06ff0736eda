"""Teams of LLM agents as durable microservices over NATS.

    from cadre import Agent, Client, ToolContext, tool

`Agent("writer", instructions="…", tools=[function])` describes an agent; `cadre up FILE.py` serves those of a module,
with their tools. `Client()` starts runs, follows them and decides on their calls, and `AsyncClient()` is its twin for
event loops. `@tool` says more of a function that is a tool.
The other public modules are `cadre.tool`, `cadre.client`, `cadre.events`, `cadre.protocol` and `cadre.testing`
(docs/python.md); all else is private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cadre.errors import CadreError, SetupError
from cadre.options import no_attribute
from cadre.protocol.usage import Budget
from cadre.spec.agent import Limits, MemorySpec, Selector
from cadre.spec.model import ModelSpec
from cadre.tool import File, ToolContext, ToolError, tool

if TYPE_CHECKING:
    from cadre.agent import Agent
    from cadre.authoring import Schedule
    from cadre.client import AsyncClient, Client, follow, new_runs
    from cadre.service.agent import serve
    from cadre.testing import Team

__version__ = "1.0.0"

__all__ = [
    "Agent",
    "AsyncClient",
    "Budget",
    "CadreError",
    "Client",
    "File",
    "Limits",
    "MemorySpec",
    "ModelSpec",
    "Schedule",
    "Selector",
    "SetupError",
    "Team",
    "ToolContext",
    "ToolError",
    "follow",
    "new_runs",
    "serve",
    "tool",
]

_HOMES = {
    "Agent": "cadre.agent",
    "AsyncClient": "cadre.client",
    "Client": "cadre.client",
    "Schedule": "cadre.authoring",
    "Team": "cadre.testing",
    "follow": "cadre.client",
    "new_runs": "cadre.client",
    "serve": "cadre.service.agent",
}
"""The modules of names that are loaded when they are used: one that only defines tools loads no HTTP client."""

_HINTS = {
    "Context": "ToolContext",
    "ModelRetry": "ToolError",
    "RunContext": "ToolContext",
    "Runner": "Agent.run_sync, or Client",
    "FunctionTool": "tool",
    "function_tool": "tool",
    "SyncClient": "Client",
    "TestModel": "cadre.testing.TestModel",
}
"""Names of other libraries, each with ours."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'cadre' has no attribute {name!r}")
    raise no_attribute("module 'cadre'", name, __all__, _HINTS.get(name, ""))
