"""What whoever starts a run asks of it beside the task."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.protocol.cards import ToolCard


class CallerTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terms for one run alone; a run of the team below it has none of them."""

    tools: list[ToolCard] = []
    """Functions that the caller answers: a call of one is held as for approval, and the feedback of the decision is its
    result."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the answer, in place of the agent's own."""
    metadata: dict[str, str] = {}
    """Notes of the caller, which nobody else reads."""
