"""The outside world: the only rooms that talk to NATS and to model endpoints."""
