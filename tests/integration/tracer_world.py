"""A tracer as its own process, and journals for it to follow, for the tracer's tests."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.journal.entry import Entry
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.stack import Service

T = TypeVar("T")


def tracer(settings: Settings, endpoint: str, folder: Path, name: str = "tracer", **more: str) -> Service:
    """`python -m cadre_tracer`, not started yet."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("CADRE_", "OTEL_"))},
        "CADRE_NATS_URL": settings.nats_url,
        "CADRE_PREFIX": settings.prefix,
        "CADRE_SHARDS": str(settings.shards),
        "CADRE_DRAIN_SECONDS": "5",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
        **more,
    }
    return Service(name, ["cadre_tracer"], environment, folder)


def write(settings: Settings, entries: Iterable[Entry], behind: dict[str, int] | None = None) -> dict[str, int]:
    """Appends entries to the journals of their runs, as their agents would; returns each run's last sequence."""

    async def append(nc: NatsClient, topology: Topology) -> dict[str, int]:
        journal = NatsJournal(nc, topology, NatsBlobs(nc, topology))
        fences = dict(behind or {})
        for entry in entries:
            fences[entry.run] = (await journal.append(entry, fences.get(entry.run, 0))).seq
        return fences

    return with_bus(settings, append)


def with_bus(settings: Settings, work: Callable[[NatsClient, Topology], Awaitable[T]]) -> T:
    """Does some work on the deployment's streams."""

    async def connected() -> T:
        nc = await connect(settings, "test")
        try:
            return await work(nc, await provision(nc, settings))
        finally:
            await nc.close()

    return asyncio.run(connected())


def left_to_do(settings: Settings) -> int:
    """Entries that the tracer has not acked yet."""

    async def ask(nc: NatsClient, topology: Topology) -> int:
        left = 0
        for shard in range(topology.shards):
            stream, consumer = topology.stream(shard), topology.tracer_consumer()
            answer = await jetstream.api(nc, f"CONSUMER.INFO.{stream}.{consumer}")
            left += answer["num_pending"] + answer["num_ack_pending"]
        return left

    return with_bus(settings, ask)
