"""One consumer's queues, one on each shard, also on those that are added while the process works."""

import asyncio
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.queues.queue import Handler, Queue
from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.delivery.fair_limiter import FairLimiter

Q = TypeVar("Q", bound=Queue)


class ShardQueues(Generic[Q]):
    """The queues of a durable consumer. `filter_of` says for which subjects of a shard each is."""

    def __init__(  # noqa: PLR0913 - what a queue is made of
        self,
        nc: NatsClient,
        watch: ShardWatch,
        consumer: str,
        filter_of: Callable[[int], str],
        handler: Handler,
        limit: FairLimiter,
        kind: type[Q],
    ) -> None:
        self._nc = nc
        self._watch = watch
        self._consumer = consumer
        self._filter_of = filter_of
        self._handler = handler
        self._limiter = limit
        self._kind = kind
        self._growing = asyncio.Lock()
        self.queues: list[Q] = []
        """By shard."""

    async def start(self) -> Self:
        """Start a queue on each shard there is, and on those to come. Raises SetupError."""
        # First, so that shards which are added meanwhile are not missed.
        self._watch.follow(self.grow)
        try:
            await self.grow()
        except BaseException:
            self._watch.leave(self.grow)
            raise
        return self

    async def grow(self) -> None:
        """Start a queue on each shard that has none. Raises SetupError."""
        async with self._growing:
            topology = self._watch.topology
            self._limiter.share_among(topology.shards)
            while (shard := len(self.queues)) < topology.shards:
                stream, subjects = topology.stream(shard), self._filter_of(shard)
                queue = self._kind(
                    self._nc, stream, self._consumer, subjects, self._handler, limit=self._limiter
                )
                await queue.start()
                self.queues.append(queue)

    async def drain(self, grace: float) -> None:
        """Stop taking messages; finish or hand back those in hand within `grace` seconds."""
        self._watch.leave(self.grow)
        async with self._growing:
            await asyncio.gather(*(queue.drain(grace) for queue in self.queues))
