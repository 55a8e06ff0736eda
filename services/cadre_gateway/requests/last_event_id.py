"""Where a client resumes an event stream: the sequence of the last entry that it has seen."""

MAX_SEQ = 2**53 - 1
"""The greatest sequence of a stream: JSON has no greater whole numbers."""


def resume_position(last_event_id: str | None, after: int | None) -> int:
    """The client's Last-Event-ID, else `?after=`, else 0, the beginning. Raises ValueError."""
    if last_event_id is None or not last_event_id.strip():
        return after or 0
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > len(str(MAX_SEQ)):
        raise ValueError(f"Last-Event-ID {last_event_id!r} is not one that this API gave")
    return int(last_event_id)
