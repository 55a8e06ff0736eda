"""Cadre's ports on NATS JetStream, one module per port: journals, queues, effects, blobs, the registry."""
