"""One connection to NATS: the client, its keys, requests and replies, and retries while a cluster elects."""
