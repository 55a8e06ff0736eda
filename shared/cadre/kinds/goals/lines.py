"""A thought in lines, for a person who looks on."""

from collections.abc import Iterator, Mapping
from typing import Any


def lines_of(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    """The lines of an event of the kind: what the model says to others, else what it thinks."""
    if name == "goals.thought" and (said := told.get("speak") or told.get("text")):
        yield f"thinks: {said}"
    elif told.get("question"):
        yield f"thinks through: {told['question']}"
        if told.get("thought"):
            yield f"finds: {told['thought']}"
