"""The outside world: the only rooms that talk to NATS, to model endpoints and to OTLP receivers."""
