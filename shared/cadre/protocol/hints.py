"""Hints that go around over core NATS beside what is stored: they save time, and may be lost."""

_AT = "@"


def cancel_hint(run: str, seq: int) -> str:
    """That a cancellation of the run lies at this sequence of its stream, for whoever asks a model for the run."""
    return f"{run}{_AT}{seq}"


def read_cancel_hint(text: str) -> tuple[str, int] | None:
    """The run and the sequence; None for any other hint."""
    run, _, seq = text.partition(_AT)
    return (run, int(seq)) if seq.isdecimal() else None
