"""The rollouts of agents, each a key of the registry's bucket that is changed by compare-and-set; and their queues.

The queues are durable consumers that gateways make and remove: services that have NATS users may not.
"""

import asyncio
from typing import NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.queues.consumers import create_consumer, queue_config
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.errors import BusUnavailable
from cadre.protocol.rollout import SLOTS, Rollout, rollout_key
from cadre.protocol.topology import Topology


class StoredRollout(NamedTuple):
    """An agent's rollout as it is stored."""

    rollout: Rollout
    fence: int
    """The fence that `write` needs to replace exactly this."""


class NatsRollouts:
    """The rollouts of a deployment. Every method raises RetryableError."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, agent: str) -> StoredRollout:
        """Return what is stored, as the stream's leader has it; one without shares where there never was any."""
        rollout, fence = await self._value(agent).read()
        return StoredRollout(rollout or Rollout(agent=agent), fence)

    async def write(self, rollout: Rollout, fence: int) -> int:
        """Replace what was read; returns the new fence. Raises Fenced when somebody else has since."""
        return await self._value(rollout.agent).write(rollout, fence)

    def _value(self, agent: str) -> FencedValue[Rollout]:
        bucket = self._topology.registry_bucket
        return FencedValue(self._nc, f"KV_{bucket}", rollout_key(bucket, agent), Rollout)


class NatsSlots:
    """The queues of agents' revisions. Every method raises BusUnavailable."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    @property
    def places(self) -> int:
        """Return in how many parts each queue is: one on every shard."""
        return self._topology.shards

    @property
    def _shards(self) -> range:
        return range(self._topology.shards)

    async def make(self, agent: str, slot: int, *, anew: bool = True) -> None:
        """Make what is missing of the slot's queue, on every shard.

        With `anew` it begins at the end of the stream: before it existed nothing was sent to it. Otherwise it was lost,
        and gets all that lies there.
        """
        begin = {"deliver_policy": "new"} if anew else {}
        await asyncio.gather(*(self._make(shard, agent, slot, begin) for shard in self._shards))

    async def _make(self, shard: int, agent: str, slot: int, begin: dict[str, str]) -> None:
        name, subjects = (
            self._topology.agent_consumer(agent, slot),
            self._topology.inbox_filter(shard, agent, slot),
        )
        config = queue_config(name, subjects) | begin
        # Without the filter in the subject: so it is of the form in which a gateway may make consumers.
        await create_consumer(self._nc, self._topology.stream(shard), name, config)

    async def waiting(self, agent: str) -> dict[int, list[int]]:
        """Of each slot that has a queue, the messages that wait in it or are in hand, of each shard that has one."""
        found = await self.lags(agent)
        found.pop(0, None)
        return found

    async def lags(self, agent: str) -> dict[int, list[int]]:
        """Of each slot that has a queue, 0 being the agent's own one, what waits in it or is in hand, by shard."""
        found: dict[int, list[int]] = {}
        names = {self._topology.agent_consumer(agent, slot): slot for slot in range(SLOTS + 1)}
        streams = [self._topology.stream(shard) for shard in self._shards]
        for consumers in await asyncio.gather(*(jetstream.consumers(self._nc, one) for one in streams)):
            for one in consumers:
                if (slot := names.get(one["name"])) is not None:
                    found.setdefault(slot, []).append(one["num_pending"] + one["num_ack_pending"])
        return found

    async def remove(self, agent: str, slot: int) -> None:
        """Remove the slot's queue on every shard."""
        name = self._topology.agent_consumer(agent, slot)
        for shard in self._shards:
            answer = await jetstream.api(self._nc, f"CONSUMER.DELETE.{self._topology.stream(shard)}.{name}")
            error = answer.get("error")
            if error is not None and error.get("code") != 404:
                raise BusUnavailable(f"removing consumer {name}", error.get("description"))
