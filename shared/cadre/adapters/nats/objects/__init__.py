"""Objects and blobs in a NATS object store: written whole or not at all, swept up after killed writers."""
