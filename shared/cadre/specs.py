"""What an agent is told to be: its model, tools, team and limits, checked when it is made."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from cadre.errors import SpecError

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A name is one token of a NATS subject and a function name for a model."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which model an agent asks, and how. What is left out comes from the environment:
    `CADRE_MODEL_URL`, `CADRE_MODEL_KEY`, `CADRE_MODEL`."""

    name: str = ""
    url: str = ""
    key_env: str = "CADRE_MODEL_KEY"
    """Name of the environment variable that holds the key; the key itself is never in a spec."""
    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: Literal["auto", "required"] = "required"
    stop: bool = True
    """Send stop sequences; false for models that refuse the parameter (answers are cut here all the same)."""
    stream: bool = True
    timeout: float = 120.0
    """Seconds without a byte from the endpoint."""
    retries: int = 6
    """Tries after a failure that is not a rate limit."""
    patience: float = 3600.0
    """Seconds that a run goes on waiting through rate limits before it gives up."""
    extra_body: dict[str, Any] = {}


class Selector(msgspec.Struct, frozen=True):
    """Every agent that has all these labels is a team member."""

    labels: dict[str, str]

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    max_steps: int = 20
    depth: int = 8
    """Levels of delegation below the root run."""
    cycles: int = 0
    """How often an agent may appear again below itself."""
    observation_chars: int = 20_000
    """A longer observation is cut in the middle before the model reads it."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent. Built from YAML by `read_agent`, or in Python."""

    name: str
    description: str
    kind: Literal["tool_calling"] = "tool_calling"
    model: ModelSpec = ModelSpec()
    instructions: str = ""
    tools: list[str] = []
    team: list[str | Selector] = []
    limits: Limits = Limits()
    planning_interval: int | None = None
    prompts: str | None = None
    """Path of a prompt file that replaces the shipped one."""
    labels: dict[str, str] = {}
    version: str = ""

    def __post_init__(self) -> None:
        for key, kind in _WRITTEN_AS.items():
            if not isinstance(getattr(self, key), kind):
                raise SpecError(f"agent {self.name}: write {key} as a {kind.__name__}")
        for what, name in [
            ("agent", self.name),
            *(("tool", t) for t in self.tools),
            *(("team member", m) for m in self.team if isinstance(m, str)),
        ]:
            check_name(what, name)
        if not self.description.strip():
            raise SpecError(f"agent {self.name}: write a description: managers' models read it")
        for key, value, least in (
            ("limits.max_steps", self.limits.max_steps, 1),
            ("limits.depth", self.limits.depth, 0),
            ("limits.cycles", self.limits.cycles, 0),
            ("limits.observation_chars", self.limits.observation_chars, 1),
            ("model.timeout", self.model.timeout, 0.001),
            ("model.retries", self.model.retries, 0),
            ("model.patience", self.model.patience, 0),
            ("planning_interval", self.planning_interval, 1),
        ):
            if value is not None and value < least:
                raise SpecError(f"agent {self.name}: {key} must be at least {least:g}")
        if "final_answer" in (*self.tools, *self.team):
            raise SpecError(f"agent {self.name}: final_answer is every agent's own; leave it out")
        if self.name in self.team and self.limits.cycles < 1:
            raise SpecError(
                f"agent {self.name}: it is in its own team, which needs limits.cycles of at least 1"
            )
        both = {m for m in self.team if isinstance(m, str)} & set(self.tools)
        if both:
            raise SpecError(
                f"agent {self.name}: {', '.join(sorted(both))} is named as tool and as team member"
            )


_WRITTEN_AS = {"model": ModelSpec, "limits": Limits, "tools": list, "team": list, "labels": dict}
"""In Python nobody else looks: tools="search" would be six tools."""


def check_name(what: str, name: str) -> None:
    """Raises SpecError unless `name` can be a subject token and a function name."""
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{what} name {name!r}: use 1 to 64 of the letters a-z, A-Z, digits, '_' and '-'"
            " (it becomes part of NATS subjects)"
        )
