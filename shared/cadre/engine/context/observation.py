"""Render a result for a model: any JSON value as text, cut in the middle when it is too long."""

from typing import Any

import msgspec


def observation_of(output: Any) -> str:
    """A text as it is, anything else as JSON."""
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def clip(text: str, limit: int | None) -> str:
    """`text`, or its two ends with a note between them when it has more than `limit` characters."""
    if limit is None or len(text) <= limit:
        return text
    note = f"\n[… {len(text) - limit} of {len(text)} characters left out …]\n"
    half = limit // 2
    return text[:half] + note + text[len(text) - (limit - half) :]
