"""Metrics of queues: those of this process, and how far behind each durable consumer of a deployment is."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from nats.aio.client import Client

from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import stream_names
from cadre.adapters.nats.streams.store_watch import account_usages
from cadre.protocol.topology import Topology
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample


def queue_samples(queues: Iterable[Queue]) -> list[Sample]:
    """Count what the queues of one process have in hand and were delivered again, over all shards of a consumer."""
    working: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for queue in queues:
        working[queue.consumer] += queue.in_flight
        again[queue.consumer] += queue.redelivered
    return [
        Sample(metric, count, _named(consumer))
        for metric, counts in ((names.IN_FLIGHT, working), (names.REDELIVERIES, again))
        for consumer, count in counts.items()
    ]


async def lag_samples(nc: Client, topology: Topology) -> list[Sample]:
    """Count the messages that wait for each durable consumer on every shard, whether or not a process serves it.
    Raises BusUnavailable."""
    found = await asyncio.gather(*(_lags(nc, topology.stream(shard)) for shard in range(topology.shards)))
    return [
        Sample(names.QUEUE_LAG, lag, {**_named(consumer), names.SHARD: str(shard)})
        for shard, lags in enumerate(found)
        for consumer, lag in lags.items()
    ]


async def dead_letter_samples(nc: Client, topology: Topology) -> list[Sample]:
    """Count the dead letters. Raises BusUnavailable."""
    stream = topology.dead_stream
    answer = await jetstream.ask(nc, f"asking for {stream}", f"STREAM.INFO.{stream}")
    return [Sample(names.DEAD_LETTERS, answer["state"]["messages"])]


async def store_samples(nc: Client, topology: Topology) -> list[Sample]:
    """Measure the streams of a deployment and the account that they are in. Raises BusUnavailable."""
    account = await jetstream.ask(nc, "asking how much room there is", "INFO")
    known = stream_names(topology)
    streams = await asyncio.gather(*(jetstream.stream_info(nc, name) for name in known))
    share = max((one.share for one in account_usages(account)), default=None)
    found = [Sample(names.STORE_UTILIZATION, share)] if share is not None else []
    for name, info in zip(known, streams, strict=True):
        if info is not None:
            copies = info.get("cluster", {}).get("replicas") or []
            lagging = sum(copy.get("offline", False) or not copy.get("current", False) for copy in copies)
            found.append(Sample(names.STREAM_BYTES, info["state"]["bytes"], {names.STREAM: name}))
            found.append(Sample(names.STREAM_LAGGING, lagging, {names.STREAM: name}))
    return found


async def _lags(nc: Client, stream: str) -> dict[str, int]:
    # Readers that a process makes for itself are not queues.
    return {
        one["name"]: one["num_pending"] + one["num_ack_pending"]
        for one in await jetstream.consumers(nc, stream)
        if one["config"].get("durable_name")
    }


def _named(consumer: str) -> dict[str, str]:
    """Return the labels of a consumer: `agent-manager` is the queue `manager` of the kind `agent`."""
    kind, _, name = consumer.partition("-")
    return {names.QUEUE_KIND: kind, names.QUEUE_NAME: name or kind}
