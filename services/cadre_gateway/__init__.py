"""The gateway: runs over HTTP, told from the journals."""
