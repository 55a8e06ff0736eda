"""One process of the memory service: it serves tools and people's requests, and runs its own cleanup."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.memory import MemoryServer
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.queues.queue import Queue, ShardQueues
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import retry
from cadre.delivery.workspace_store import WorkspaceStore
from cadre.errors import SettingError, SetupError
from cadre.protocol.memory import QUERY_RESOURCES
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.settings import read_secret
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre.tools.workspace import Workspace
from cadre_memory.embedding.embedder import Embedder
from cadre_memory.embedding.open import open_embedder
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import IndexRefused, Schema, Store
from cadre_memory.operations.expiry import ErasureListener, expire_periodically
from cadre_memory.operations.reembed import Reembedder
from cadre_memory.operations.search import Searcher
from cadre_memory.operations.writing import ChunkEmbedder, Sweeper, Writer
from cadre_memory.settings import MemorySettings
from cadre_memory.tools.keep import Workers
from cadre_memory.tools.memories import CARDS, CallHandler, Memories, ResourceSearch
from cadre_memory.tools.requests import RequestHandlers

log = logging.getLogger("cadre.memory")

_DAY_SECONDS = 86400.0


class MemoryHost:
    """The memory service's part of the frame of every process (`cadre.service.platform.Part`)."""

    app: AsgiApp | None = None
    """None: it has no HTTP but the frame's health endpoints."""

    def __init__(self, platform: Platform, settings: MemorySettings) -> None:
        self._platform = platform
        self._settings = settings
        self._clock = platform.clock
        self._embedder: Embedder | None = None
        self._index: MemoryIndex | None = None
        self._backend = ""
        self._replaced = ""
        self._requests: RequestHandlers | None = None
        self._server: MemoryServer | None = None
        self._queues: list[ShardQueues[Queue]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: str | None = None

    async def start(self) -> None:
        """Open the index and begin to work. Raises BusUnavailable, SetupError, IndexUnavailable."""
        platform, settings = self._platform, self._settings
        self._embedder = embedder = await open_embedder(settings)
        # A server may be slow to come, and an engine that was killed slow to release its files.
        self._index = index = await retry(
            lambda: _open_index(settings, embedder), self._clock.sleep, told=platform.opening.waits
        )
        self._backend = (await index.status()).backend
        if replaced := self._replaced_at(index.id):
            self._replaced = (
                f"this index was made on {_day(index.id)}, and has nothing of the one before it, which was in use until"
                f" {replaced}"
            )
            log.warning("index: %s", self._replaced)
        for outcome in ("parts", "words_only"):
            platform.meters.record(names.MEMORY_REFUSED_CHUNKS, 0, {names.OUTCOME: outcome})
        chunk_embedder = ChunkEmbedder(embedder, platform.meters) if embedder is not None else None
        sweeper = Sweeper(index, chunk_embedder, settings.embeddings_batch) if chunk_embedder is not None else None
        reembedder = Reembedder(index, chunk_embedder)
        searcher = Searcher(
            *(index, embedder, settings.embeddings_seconds),
            problem=lambda: reembedder.problem,
            lack=sweeper.lack if sweeper is not None else str,
            on_vector=sweeper.retry_now if sweeper is not None else _nothing,
            replaced=self._replaced,
        )
        writer, erasures = Writer(index), ErasureListener(index, self._clock)
        workers = Workers(writer, searcher, sweeper, erasures)
        self._requests = RequestHandlers(index, searcher, embedder, reembedder, workers, self._clock)
        resources = ResourceSearch(index, workers, self._workspace_of)
        calls = CallHandler(
            Memories(index, workers, resources, settings.keep_days * _DAY_SECONDS),
            platform.bus,
            platform.blobs,
            NatsQuarantine(platform.nc, platform.topology),
            platform.settings.instance_name(),
            platform.clock,
        )
        calls.meters = platform.meters
        self._spawn("writer", writer.run())
        self._spawn("reaper", expire_periodically(index, self._clock))
        self._spawn("mover", reembedder.run())
        if sweeper is not None:
            self._spawn("sweeper", sweeper.run())
        await self._listen(calls, erasures)
        self._server = MemoryServer(platform.nc, platform.topology, self._requests.by_verb())
        await self._server.start()
        presences = [replace(platform.presence(tool=card), index=index.id) for card in CARDS]
        await platform.registry.announce(presences)
        log.info("index: %s; %s", self._backend, self._searched_by())

    def unready(self) -> str | None:
        """Return why it does not serve; None when it does."""
        return self._failed or ("starting" if self._server is None else None)

    def about(self) -> dict[str, str]:
        """Return what /readyz says besides: the kind of index, and what memories are searched by."""
        index = "; ".join(filter(None, (self._backend, self._replaced)))
        return {"index": index, "embeddings": self._searched_by()}

    def _replaced_at(self, own: str) -> str:
        """Return until when the replicas before this one served from another index; empty when they did not."""
        before = [
            one.away_since or self._clock.now()
            for one in self._platform.registry.reachable()
            if one.tool is not None and one.index not in ("", own)
        ]
        return _moment(max(before)) if before else ""

    async def samples(self) -> list[Sample]:
        """Return the queues' metrics."""
        return queue_samples([queue for queues in self._queues for queue in queues.queues])

    async def drain(self, grace: float) -> None:
        """Take no more calls; those at work have `grace` seconds, the rest goes back to the queues."""
        await asyncio.gather(*(queues.drain(grace) for queues in self._queues))
        if self._server is not None:
            await self._server.drain(grace)
        for task in self._tasks:
            task.cancel()
        if self._index is not None:
            await self._index.close()
        if self._embedder is not None:
            await self._embedder.close()

    async def _listen(self, calls: CallHandler, erasures: ErasureListener) -> None:
        nc, watch, topology = self._platform.nc, self._platform.shards, self._platform.topology
        limiter = FairLimiter(self._platform.settings.concurrency)
        for card in CARDS:
            own = FairLimiter(limiter.capacity, queues=topology.shards, within=limiter)
            consumer, calls_of = (
                topology.tool_consumer(card.name),
                partial(topology.call_filter, tool=card.name),
            )
            queues = ShardQueues(nc, watch, consumer, calls_of, calls.handle, own, Queue)
            self._queues.append(await queues.start())
        one = FairLimiter(1, queues=topology.shards)
        consumer = topology.lifecycles_consumer("memory")
        queues = ShardQueues(nc, watch, consumer, topology.lifecycles_filter, erasures.handle, one, Queue)
        self._queues.append(await queues.start())

    def _workspace_of(self, caller: Caller) -> Workspace:
        """Open the workspace of the caller's run, to read it."""
        files = NatsFileIndex(self._platform.nc, self._platform.topology)
        return WorkspaceStore(
            *(files, self._platform.blobs),
            tree=caller.tree,
            call=caller.call,
            by=QUERY_RESOURCES,
            most_bytes=0,
        )

    def _searched_by(self) -> str:
        """Say in words what memories are searched by."""
        why = self._requests.degraded() if self._requests is not None else "starting"
        if self._embedder is None:
            return why
        model = str(self._embedder.fingerprint)
        return f"{model}; at this moment by words only: {why}" if why else model

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(partial(self._stopped, name))
        self._tasks.append(task)

    def _stopped(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._failed = f"the {name} has stopped: this process must be started again"
            log.critical("%s", self._failed, exc_info=error)


async def _open_index(settings: MemorySettings, embedder: Embedder | None) -> MemoryIndex:
    return await open_index(
        schema_of(embedder),
        qdrant_url=settings.qdrant_url,
        api_key=read_secret("QDRANT_API_KEY"),
        directory=Path(settings.directory),
        prefix=settings.collections,
    )


def schema_of(embedder: Embedder | None) -> Schema:
    """Return the schema of this embedder's vectors: two models never share a collection."""
    if embedder is None:
        return Schema()
    model = embedder.fingerprint
    text = f"{model.name} {model.dim} {model.window} {model.weights}"
    return Schema(model=model.name, fingerprint=text, dim=model.dim)


def _day(index: str) -> str:
    return _moment(float(index.partition("_")[0]))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _nothing() -> None:
    """Do nothing: no sweeper waits for a vector."""


OLDEST_SERVER = (1, 19)
"""The first version of Qdrant that counts how rare a word is within a filter."""


async def open_index(
    own: Schema, *, qdrant_url: str = "", api_key: str = "", directory: Path, prefix: str = "mem"
) -> MemoryIndex:
    """Return the index, ready to be used; `prefix` begins the names of its collections.

    Raises SetupError when it cannot be used as configured, IndexUnavailable when a server does not answer (yet).
    """
    if "__" in prefix or not prefix:
        raise SettingError(f"{prefix!r} cannot begin the names of collections: one '_' at a time")
    try:
        store = await _open_store(qdrant_url, api_key, directory)
    except IndexRefused as error:
        raise SetupError(str(error)) from error
    try:
        return await MemoryIndex.open(store, own, prefix=prefix)
    except BaseException:
        await store.close()
        raise


async def _open_store(qdrant_url: str, api_key: str, directory: Path) -> Store:
    if qdrant_url:
        return await _open_server(qdrant_url, api_key)
    from cadre_memory.index.sqlite_store import SqliteStore

    return await SqliteStore.open(directory)


async def _open_server(url: str, api_key: str) -> Store:
    if not url.startswith(("http://", "https://")):
        raise SettingError(f"QDRANT_URL={url}: must begin with http:// or https://")
    from cadre_memory.index.qdrant_store import QdrantStore

    store = QdrantStore.server(url, api_key)
    try:
        version = await store.version()
        if version < OLDEST_SERVER:
            raise SetupError(
                f"the Qdrant server at {url} is of version {'.'.join(map(str, version))}: it must be"
                f" {'.'.join(map(str, OLDEST_SERVER))} or newer"
            )
    except BaseException:
        await store.close()
        raise
    return store
