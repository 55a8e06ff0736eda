"""One connection to NATS: the client, its keys, requests and replies."""
