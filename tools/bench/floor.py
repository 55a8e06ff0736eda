"""The messages of a delegation with no agent in them: what the bus alone takes for them, through the same adapters."""

import asyncio
from uuid import uuid4

from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import HEADERS
from cadre.delivery.fair_limiter import FairLimiter
from cadre.service.platform import Platform

BOSS = "floor-boss"
WORKER = "floor-worker"

_WITHIN = 60.0


class Relay:
    """Takes each message of one name's inboxes: two fenced entries, the next message, an ack."""

    def __init__(self, platform: Platform, name: str, payload: bytes = b"") -> None:
        self._nc, self._topology = platform.nc, platform.topology
        self._name = name
        self._payload = payload
        self._begun: dict[str, int] = {}
        self._ended: dict[str, asyncio.Future[None]] = {}
        limiter = FairLimiter(platform.settings.concurrency, queues=self._topology.shards)
        self._queues = [
            Queue(
                self._nc,
                self._topology.stream(shard),
                self._topology.agent_consumer(name),
                self._topology.inbox_filter(shard, name),
                self._handle,
                limit=limiter,
            )
            for shard in range(self._topology.shards)
        ]

    async def start(self) -> None:
        for queue in self._queues:
            await queue.start()

    async def drain(self) -> None:
        for queue in self._queues:
            await queue.drain(1.0)

    async def delegate(self) -> None:
        """A task to the boss, until its last entry is stored."""
        tree = uuid4().hex
        ended = self._ended[tree] = asyncio.get_running_loop().create_future()
        await self._send(BOSS, tree, tree, self._payload)
        await asyncio.wait_for(ended, _WITHIN)

    async def _handle(self, delivery: NatsDelivery) -> None:
        tree, run = self._topology.parse(delivery.subject)
        fence = self._begun.pop(run, 0)
        last = await self._append(tree, run, delivery.data, await self._append(tree, run, delivery.data, fence))
        if self._name == WORKER:
            await self._send(BOSS, tree, tree, delivery.data)
        elif fence:
            self._ended.pop(tree).set_result(None)
        else:
            self._begun[run] = last
            await self._send(WORKER, tree, f"{tree}_1_0", delivery.data)
        await delivery.ack()

    async def _append(self, tree: str, run: str, data: bytes, fence: int) -> int:
        subject = self._topology.journal(tree, run)
        return await jetstream.append(self._nc, subject, data, expect=fence, headers=HEADERS)

    async def _send(self, to: str, tree: str, run: str, data: bytes) -> None:
        subject = self._topology.inbox(to, self._name, tree, run)
        headers = HEADERS | {jetstream.MESSAGE_ID: f"{run}:{self._name}"}
        await jetstream.append(self._nc, subject, data, headers=headers)
