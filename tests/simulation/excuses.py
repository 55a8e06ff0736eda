"""Excuses for blocks that ended otherwise than their code says: for a reason that the seed gave, or for none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cadre.kinds.code.records import BlockFinished
from simulation.history import Chronicle, Violation

if TYPE_CHECKING:
    from simulation.world import World

NO_DIVERGENCE = "a replay does what was done before"
REASON = "a block is stopped for a reason"

Excuse = Literal["", "kept", "gone"]
"""The remaining variables: those of before the block, or none. Empty: it came to its own end."""

_MOST_LOST = 3


def is_excused(world: World, chronicle: Chronicle, event: BlockFinished) -> Excuse:
    """Return whether the block was stopped from outside. Raises Violation where nothing in the world gave cause for
    it."""
    assert event.error is not None
    counts, text = world.trace.counts, event.error.message
    match event.error.type:
        case "Poisoned":
            return _with(counts["trial"] > 0, "kept", event)
        case "DeadlineExceeded":
            return _with(chronicle.run.deadline is not None, "kept", event)
    if not text.startswith("Code execution stopped"):
        return ""
    if "this time it" in text:
        raise Violation(NO_DIVERGENCE, f"{event.block}: {text}")
    if "its interpreter was lost" in text:
        return _with(counts["box-killed"] >= _MOST_LOST, "kept", event)
    if "could not be restored" in text:
        return _with(counts["unrestorable"] > 0, "gone", event)
    if "The code was stopped after" in text:
        return _with(counts["code-slow"] + counts["stop"] > 0, "kept", event)
    raise Violation(REASON, f"{event.block}: {text}")


def _with(reason: bool, excuse: Excuse, event: BlockFinished) -> Excuse:
    if not reason:
        raise Violation(REASON, f"{event.block}: {event.error}")
    return excuse
