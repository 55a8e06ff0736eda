"""What the HTTP API answers when something is sent to a run that goes on. Times are Unix seconds."""

from typing import Any

import msgspec


class Delivered(msgspec.Struct):
    """Something that was sent to a run. `at` is null as long as no agent has taken it up: it is kept until then."""

    id: str
    run: str
    at: float | None = None


class Edited(msgspec.Struct, kw_only=True):
    """What a person may edit of a run, as it is now."""

    run: str
    name: str
    """`queue` or `plan`."""
    version: int
    """An edit names the one that it is based on."""
    state: Any
    """All of it; its form is up to the agent's kind."""
