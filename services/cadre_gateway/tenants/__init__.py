"""Tenants: one gateway process that serves several NATS accounts, each by host names of its own."""
