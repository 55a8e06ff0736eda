"""Who offers what: the cards of tools, agents and sandboxes, as their services register them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ToolCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as its executor registers it and as a model is offered it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    """JSON Schema (2020-12) of an object."""
    output_schema: dict[str, Any] | None = None
    read_only: bool = False
    """The tool changes nothing: it may run again after a crash, without a claim."""
    idempotent: bool = False
    """Running twice with one call id has the effect of running once."""
    timeout: float | None = None
    """Seconds that one call may be at work."""
    approval: str = ""
    """Whether a person must agree to a call: `never`, `always` or `when: <expression over the arguments>`;
    empty leaves it to the agent."""
    labels: dict[str, str] = {}
    version: str = ""


class AgentCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as its service registers it and as a manager's model is offered it."""

    name: str
    description: str
    kind: str = "tool_calling"
    labels: dict[str, str] = {}
    version: str = ""
    tools: list[str] = []
    team: list[str] = []
    """Names, or label selectors written `key=value,…`."""


TIERS = ("ns", "landlock")
"""How well a sandbox isolates code, the best first; docs/sandbox.md explains them."""


class SandboxCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox as its service registers it: whose code it runs, and how well that is locked in."""

    pool: str
    tier: str
    """`ns` or `landlock`."""
    python: str = ""
    """Version of the code's Python."""
    sessions: int = 0
    """Interpreters at once."""
    version: str = ""


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """One live replica, the value of a registry key; it expires unless the replica renews it."""

    v: Literal[1] = 1
    instance: str
    host: str
    pid: int
    health: str = ""
    """Base URL of the replica's /healthz and /readyz."""
    started_at: float
    agent: AgentCard | None = None
    tool: ToolCard | None = None
    sandbox: SandboxCard | None = None
