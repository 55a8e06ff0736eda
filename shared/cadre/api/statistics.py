"""The usage of agents, as the HTTP API shows it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

Dimension = Literal["day", "team", "agent", "user", "session", "model", "tool"]
"""Dimensions of the sums. A `team` is named by the agent of its trees' roots."""


class Figures(msgspec.Struct, kw_only=True):
    """Sums over what journals tell."""

    runs: int = 0
    """That have ended, those of members too."""
    failed: int = 0
    """Of these: neither successful nor cancelled."""
    model_calls: int = 0
    unpriced_calls: int = 0
    """Of these: nobody told what the model costs, so that they are in no cost."""
    tool_calls: int = 0
    tool_failures: int = 0
    """Of these: ended with an error or in no time."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In the currency of the price table."""

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def add(self, more: Figures) -> None:
        """Adds other sums to these."""
        for name in Figures.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(more, name))


class FiguresRow(Figures, kw_only=True):
    """The sums of one combination of what they are taken by; the other dimensions are not there."""

    day: str | UnsetType = UNSET
    """Of UTC, such as 2026-11-22."""
    team: str | UnsetType = UNSET
    """Agent of the tree's root; "" where it is not known any more."""
    agent: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    """"" for runs that work for nobody in particular."""
    session: str | UnsetType = UNSET
    """"" without one, and for days whose sessions are not kept apart any more."""
    model: str | UnsetType = UNSET
    """As the endpoint names it; "" for what is no model call."""
    tool: str | UnsetType = UNSET
    """"" for what is no tool call."""


class Statistics(msgspec.Struct, kw_only=True):
    """Sums over a time. Times are Unix seconds."""

    since: float
    until: float
    by: list[Dimension]
    rows: list[FiguresRow]
    total: Figures
