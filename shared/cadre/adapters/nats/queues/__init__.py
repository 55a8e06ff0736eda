"""Durable consumers as queues: created, pulled from, each delivery handled and settled."""
