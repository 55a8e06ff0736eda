"""The outside world: the only rooms that talk to NATS, to model endpoints, to MCP servers and to OTLP receivers."""
