"""Define what a run has used, and what it may use."""

from __future__ import annotations

from typing import Annotated

import msgspec

from cadre.options import explained
from cadre.structs import Checked

LENGTH_OF_TIME = "cadre.dev/length-of-time"
"""Marks the type of a field."""

Seconds = Annotated[float, msgspec.Meta(extra={LENGTH_OF_TIME: True})]
"""A length of time; a file may say it as `90s`, `10m`, `2h` or `3d` too."""


@explained({"requests": "model_calls", "prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"})
class Usage(msgspec.Struct, frozen=True):
    """The usage of a run and all runs below it."""

    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    steps: int = 0
    """Finished steps."""
    cost: float = 0.0
    """In the currency of the price table; models without a price cost nothing here."""
    calls: int = 0
    stored_bytes: int = 0
    """The bytes stored for code; `calls` are those that code has made."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.model_calls + other.model_calls,
            self.steps + other.steps,
            self.cost + other.cost,
            self.calls + other.calls,
            self.stored_bytes + other.stored_bytes,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class TokenUsage(Usage, frozen=True, omit_defaults=True):
    """The usage of one model call. Fields that are 0 are not stored."""

    @classmethod
    def of(cls, usage: Usage) -> TokenUsage:
        """Return the same usage."""
        return cls(**msgspec.structs.asdict(usage))


class Budget(msgspec.Struct, metaclass=Checked, frozen=True, kw_only=True, omit_defaults=True):
    """The most that a run and all runs below it may use together, cost in the currency of the price table; None is no
    bound.

    Examples:
        >>> budget = Budget(tokens=200_000, cost=0.5)
        >>> budget.steps is None
        True
    """

    tokens: int | None = None
    """Input and output tokens."""
    cost: float | None = None
    steps: int | None = None
    depth: int | None = None
    """Levels of delegation below the run."""
    calls: int | None = None
    stored_mb: float | None = None
    """Megabytes stored for code; `calls` are those that code makes."""
