"""The gateway: runs over HTTP, read from their journals."""

SENDER = "gateway"
"""Names the gateway in subjects, and as the writer of files."""
