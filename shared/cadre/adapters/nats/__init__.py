"""Cadre's ports on NATS JetStream, one module per port: journals, queues, effects, blobs, the registry."""

import importlib
import sys

if "aiohttp" not in sys.modules:
    # Where it is installed nats-py imports it, for WebSockets, which Cadre does not speak (`nats_users`): it
    # would be 11 MB of each process, and half of what its start costs.
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("nats.aio.transport")
    finally:
        del sys.modules["aiohttp"]
