"""Its own NATS server and this process's agent on it, the production host unchanged."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from cadre.adapters.nats.streams import jetstream
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent, RunFinished
from cadre.ports import Appended, Journal, Model, Stored
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Task
from cadre.service.agent import AgentHost, AgentHosts
from cadre.service.frame import calm_collector
from cadre.service.platform import Platform, open_platform
from cadre.settings import Settings
from cadre.spec.agent import AgentSpec
from harness.nats_cluster import SIZE, NatsCluster
from harness.nats_server import NatsServer

ENDS_WITHIN = 60.0


class WatchedJournal:
    """ports.Journal that passes everything on, and reports when a run's journal has an event."""

    def __init__(self, inner: Journal) -> None:
        self._inner = inner
        self._awaited: dict[str, tuple[type[AnyEvent], asyncio.Future[Entry]]] = {}

    def awaits(self, run: str, kind: type[AnyEvent]) -> asyncio.Future[Entry]:
        """The entry that brings an event of this kind, once it is stored."""
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._awaited[run] = (kind, future)
        return future

    async def read(self, tree: str, run: str) -> list[Stored]:
        return await self._inner.read(tree, run)

    async def last(self, tree: str, run: str) -> int:
        return await self._inner.last(tree, run)

    async def append(self, entry: Entry, fence: int, **more: Any) -> Appended:
        appended = await self._inner.append(entry, fence, **more)
        awaited = self._awaited.get(entry.run)
        if awaited is not None and any(isinstance(event, awaited[0]) for event in entry.events):
            del self._awaited[entry.run]
            awaited[1].set_result(entry)
        return appended


class Deployment:
    """The server, the connection, and the agents served from here."""

    def __init__(self, nats: NatsServer | NatsCluster, platform: Platform, journal: WatchedJournal) -> None:
        self.nats = nats
        self.platform = platform
        self.journal = journal
        self._hosts: list[AgentHosts] = []

    async def serve(self, spec: AgentSpec, model: Model) -> None:
        host = AgentHosts(self.platform, [AgentHost(spec, Prompts.load(spec.kind), self.platform, model)])
        await host.start()
        calm_collector()
        self._hosts.append(host)

    async def offered(self, *names: str) -> None:
        """Waits until live services offer all these tools and agents."""

        def missing() -> set[str]:
            presences = self.platform.registry.presences()
            cards = [presence.agent or presence.tool for presence in presences]
            return set(names) - {card.name for card in cards if card is not None}

        while missing():
            await asyncio.wait_for(self.platform.registry.changed(), ENDS_WITHIN)

    def task(self, agent: str, text: str) -> Task:
        run = uuid4().hex
        return Task(id=f"{run}:task", tree=run, run=run, at=time.time(), agent=agent, task=text)

    async def run(self, task: Task) -> RunFinished:
        """Sends a root task and waits until its end is journaled. Raises RuntimeError when it fails."""
        ended = self.journal.awaits(task.run, RunFinished)
        await self.platform.bus.send(task, "bench")
        last = (await asyncio.wait_for(ended, ENDS_WITHIN)).events[-1]
        if not isinstance(last, RunFinished) or last.state != "success":
            raise RuntimeError(f"run {task.run} did not succeed: {last}")
        return last

    async def streams(self) -> list[dict[str, Any]]:
        """The state of each shard's stream."""
        topology, nc = self.platform.topology, self.platform.nc
        names = map(topology.stream, range(topology.shards))
        return [(await jetstream.api(nc, f"STREAM.INFO.{name}"))["state"] for name in names]

    async def left(self, consumer: str) -> int:
        """Records that wait for delivery or an ack at this consumer, on all shards."""
        topology, nc = self.platform.topology, self.platform.nc
        names = map(topology.stream, range(topology.shards))
        infos = [await jetstream.api(nc, f"CONSUMER.INFO.{name}.{consumer}") for name in names]
        return sum(info["num_pending"] + info["num_ack_pending"] for info in infos)

    async def close(self) -> None:
        for host in self._hosts:
            await host.drain(2.0)
        await self.platform.registry.stop()
        await self.platform.nc.close()


@contextmanager
def _running_nats(sync: str, servers: int) -> Iterator[NatsServer | NatsCluster]:
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
        kind = NatsCluster if servers == SIZE else NatsServer
        nats = kind(Path(folder), sync=sync)
        try:
            nats.start()
            yield nats
        finally:
            nats.stop()


@asynccontextmanager
async def deployment(shards: int | None = None, sync: str = "always", servers: int = 1) -> AsyncIterator[Deployment]:
    """Runs on free ports and a fresh folder, gone afterwards; `shards` is the default unless given.

    `sync` is the sync_interval of its NATS servers, one or three, each of which has a copy of every stream.
    """
    with _running_nats(sync, servers) as nats:
        settings = Settings(nats_url=nats.url, replicas=servers)
        if shards is not None:
            settings = Settings(nats_url=nats.url, replicas=servers, shards=shards)
        platform = await open_platform("bench", settings)
        journal = WatchedJournal(platform.journal)
        here = Deployment(nats, platform._replace(journal=journal), journal)
        try:
            yield here
        finally:
            await here.close()
