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
from cadre.options import missing_name
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
    "APIConnectionError": "cadre.client.Unreachable",
    "APIError": "cadre.client.ClientError",
    "APIStatusError": "cadre.client.ClientError",
    "APITimeoutError": "cadre.client.TimedOut",
    "AssistantAgent": "Agent",
    "AuthenticationError": "cadre.client.Unauthorized",
    "BadRequestError": "cadre.client.InvalidRequest",
    "BaseTool": "tool, on a function",
    "Cadre": "Client",
    "CadreClient": "Client",
    "CodeAgent": "Agent(…, kind='code')",
    "ConflictError": "cadre.client.Conflict",
    "Context": "ToolContext",
    "ConversableAgent": "Agent",
    "Crew": "Agent(…, team=[…])",
    "FunctionTool": "tool",
    "ModelRetry": "ToolError",
    "ModelSettings": "ModelSpec, or Agent(…, model={…})",
    "NotFoundError": "cadre.client.NotFound",
    "PermissionDeniedError": "cadre.client.Unauthorized",
    "RateLimitError": "cadre.client.TooManyRequests",
    "RunConfig": "Client.start takes its options",
    "RunContext": "ToolContext",
    "RunContextWrapper": "ToolContext",
    "Runner": "Agent.run_sync, or Client",
    "SyncClient": "Client",
    "Task": "Client.start(agent, task)",
    "TestModel": "cadre.testing.TestModel",
    "Tool": "tool, on a function",
    "ToolCallingAgent": "Agent",
    "UsageLimits": "Limits, or Agent(…, limits={…})",
    "function_tool": "tool",
    "get_client": "AsyncClient",
    "get_sync_client": "Client",
    "models": "Agent(…, model=…), and cadre.testing for tests",
    "workflow": "Agent(…, kind='workflow', workflow={…})",
}
"""Names of other libraries, each with ours."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise missing_name(__name__, name, __all__, _HINTS)
