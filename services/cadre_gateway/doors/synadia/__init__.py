"""Synadia's agent protocol: agents as services on NATS, which callers there find and prompt."""
