"""What the HTTP API answers when something is sent to a run that goes on. Times are Unix seconds."""

import msgspec


class Delivered(msgspec.Struct):
    """Something that was sent to a run. `at` is null as long as no agent has taken it up: it is kept until then."""

    id: str
    run: str
    at: float | None = None
