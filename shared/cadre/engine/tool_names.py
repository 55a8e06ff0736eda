"""Names that every agent's model is offered beside its tools and members."""

from __future__ import annotations

FINAL_ANSWER = "final_answer"
