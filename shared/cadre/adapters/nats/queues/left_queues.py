"""The queues of a deployment's agents, tools and pools, and the removal of one that nothing serves.

A queue is a durable consumer on every shard. Its removal takes no message from the streams: a queue that is made again
delivers all of them once more, and what was handled before has no effect.
"""

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.queues.consumers import create_consumer, queue_config
from cadre.adapters.nats.registry import is_retired
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable
from cadre.protocol.topology import Topology

_KINDS = {"agent": "agent", "tool": "tool", "code": "sandbox"}
"""Kinds of services by what the names of their consumers begin with."""


class LeftQueue(NamedTuple):
    """The queue of one service on all shards, with those of an agent's revisions."""

    waiting: int
    """Messages that wait in it or are in hand."""
    is_pulled: bool
    """True if a process asks for its messages."""


class NatsLeftQueues:
    """The queues of one deployment. Every method raises BusUnavailable."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def states(self) -> dict[ServiceKey, LeftQueue]:
        """Return the state of each queue, by its service."""
        return {
            service: LeftQueue(
                sum(one["num_pending"] + one["num_ack_pending"] for _, one in parts),
                any(one["num_waiting"] for _, one in parts),
            )
            for service, parts in (await self._parts()).items()
        }

    async def remove(self, service: ServiceKey) -> bool:
        """Remove the queue of a retired service, unless something waits in it or it is pulled; return whether it is
        gone. Who provisions the service at this moment has the queue."""
        parts = (await self._parts())[service]
        if any(one["num_pending"] or one["num_ack_pending"] or one["num_waiting"] for _, one in parts):
            return False
        for stream, one in parts:
            answer = await jetstream.api(self._nc, f"CONSUMER.DELETE.{stream}.{one['name']}")
            error = answer.get("error")
            if error is not None and error.get("code") != 404:
                raise BusUnavailable(f"removing consumer {one['name']}", error.get("description"))
            if not await is_retired(self._nc, self._topology, service):
                # It was provisioned between the two looks, and may have found the queue that is gone now.
                await self._make_again(stream, one)
                return False
        return True

    async def _parts(self) -> defaultdict[ServiceKey, list[tuple[str, dict[str, Any]]]]:
        """Return the consumers of each service, each with its stream."""
        streams = [self._topology.stream(shard) for shard in range(self._topology.shards)]
        parts: defaultdict[ServiceKey, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        found = await asyncio.gather(*(jetstream.consumers(self._nc, stream) for stream in streams))
        for stream, consumers in zip(streams, found, strict=True):
            for one in consumers:
                kind, _, name = one["name"].partition("-")
                if kind in _KINDS and one["config"].get("durable_name"):
                    # The queues of an agent's revisions have names like `clerk~1`.
                    parts[ServiceKey(_KINDS[kind], name.partition("~")[0])].append((stream, one))
        return parts

    async def _make_again(self, stream: str, one: dict[str, Any]) -> None:
        config = queue_config(one["name"], one["config"]["filter_subject"], one["config"]["max_deliver"])
        begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": one["ack_floor"]["stream_seq"] + 1}
        await create_consumer(self._nc, stream, one["name"], config | begin)
