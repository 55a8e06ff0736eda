"""The bench of a service: a client of its deployment that hears the answers, and processes to kill."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.connect import connect, settled
from cadre.adapters.nats.dead_letters import DeadLetter, NatsDeadLetters
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import unpack_record
from cadre.protocol.messages import CodeFinished, CodeYielded, ErrorInfo, ToolResult
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.patience import patience, until

A = TypeVar("A", ToolResult, CodeYielded | CodeFinished)


class ServiceBench(Generic[A]):
    """Sends calls as an agent would and hears what comes to its inbox. Use `open`."""

    inboxes = ">"
    """Filter of the inboxes that are heard, behind the deployment's prefix."""

    def __init__(self, settings: Settings, folder: Path, nc: NatsClient, topology: Topology) -> None:
        self.settings = settings
        self.folder = folder
        self.nc = nc
        self.topology = topology
        self.blobs = NatsBlobs(nc, topology)
        self.bus = NatsBus(nc, topology, self.blobs)
        self._answers: dict[str, asyncio.Queue[A]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, folder: Path) -> AsyncIterator[Self]:
        nc = await connect(settings, "test")
        bench = cls(settings, folder, nc, await provision(nc, settings))
        await nc.subscribe(f"{bench.topology.prefix}.in.{cls.inboxes}", cb=bench._on_message)
        await settled(nc)
        try:
            async with bench.prepared():
                yield bench
        finally:
            await bench.close()
            await nc.close()

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Yield the other parts that a bench needs."""
        yield

    async def close(self) -> None:
        """Kills what was started."""
        raise NotImplementedError

    def sender_of(self, answer: A) -> str:
        """Return who must have sent the answer."""
        raise NotImplementedError

    async def _on_message(self, message: Any) -> None:
        record: Any = await unpack_record(message.data, self.blobs)
        assert self.topology.address(message.subject).sender == self.sender_of(record)
        self._inbox(record.call if isinstance(record, ToolResult) else record.run).put_nowait(record)

    def _inbox(self, key: str) -> asyncio.Queue[A]:
        return self._answers.setdefault(key, asyncio.Queue())

    async def next_answer(self, key: str) -> A:
        """The next one to a tool call, or to a run's code."""
        return await asyncio.wait_for(self._inbox(key).get(), patience())

    async def consumers(self, *names: str) -> list[dict[str, Any]]:
        """Return what the server says of these consumers, on all shards."""
        streams = map(self.topology.stream, range(self.topology.shards))
        return [await jetstream.api(self.nc, f"CONSUMER.INFO.{stream}.{name}") for stream in streams for name in names]

    async def none_left(self, *names: str) -> bool:
        """Return whether nothing waits at these consumers for delivery or an ack."""
        infos = await self.consumers(*names)
        return not any(info["num_pending"] or info["num_ack_pending"] for info in infos)

    async def dead_letter(self, tree: str = "") -> DeadLetter:
        """The only one, or the only one about a message of this tree."""
        letters = NatsDeadLetters(self.nc, self.topology)

        async def of_tree() -> list[DeadLetter]:
            return [
                one
                for one in await letters.newest(100)
                if not tree or (one.message and Topology.address(one.message.subject).tree == tree)
            ]

        [letter] = await until(of_tree)
        return letter

    def environment(self, instance: str, **variables: str) -> dict[str, str]:
        """Of a process of the deployment."""
        return {
            **os.environ,
            "CADRE_NATS_URL": self.settings.nats_url,
            "CADRE_PREFIX": self.settings.prefix,
            "CADRE_SHARDS": str(self.settings.shards),
            "CADRE_INSTANCE": instance,
            **variables,
        }


def failure(answer: ToolResult | CodeFinished) -> ErrorInfo:
    """The error that the answer must have."""
    assert answer.error is not None, answer
    return answer.error


def finished(answer: CodeYielded | CodeFinished) -> CodeFinished:
    assert isinstance(answer, CodeFinished), answer
    return answer


def yielded(answer: CodeYielded | CodeFinished) -> CodeYielded:
    assert isinstance(answer, CodeYielded), answer
    return answer
