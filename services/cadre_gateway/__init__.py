"""The gateway: runs over HTTP, read from their journals."""
