"""Live agents, tools and sandboxes, as the HTTP API shows them."""

from typing import Any

import msgspec


class Replica(msgspec.Struct, frozen=True):
    """A process that serves an agent, a tool or a sandbox pool."""

    instance: str
    host: str
    pid: int
    health: str
    started_at: float


class LiveAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with at least one live replica; the card is that of the youngest."""

    name: str
    description: str
    kind: str
    labels: dict[str, str]
    version: str
    tools: list[str]
    team: list[str]
    missing: list[str]
    """Tools and team members that the agent names and no live service offers."""
    replicas: list[Replica]


class LiveTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with at least one live executor."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    read_only: bool
    idempotent: bool
    timeout: float | None
    approval: str
    """Whether a person must agree to a call, as the tool says; empty leaves it to the agents."""
    labels: dict[str, str]
    version: str
    replicas: list[Replica]


class LiveSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with at least one live sandbox."""

    pool: str
    tier: str
    """How well code is locked in: that of the replica where it is least."""
    python: str
    """Version of the code's Python; several when the replicas differ."""
    sessions: int
    """Interpreters at once, over all replicas."""
    version: str
    replicas: list[Replica]
