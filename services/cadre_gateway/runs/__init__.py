"""What the gateway does with runs: submit, look up, approve, fork, replay, erase, stream their events."""

SENDER = "gateway"
"""Names the gateway in subjects, and as the writer of files."""
