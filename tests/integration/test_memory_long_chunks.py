"""An embeddings endpoint that takes short texts only, over HTTP: every chunk has vectors, searches say what lacks."""

import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cadre.protocol.messages import Origin
from cadre.settings import Settings
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_memory.embedding.open import EndpointEmbedder, open_embedder
from cadre_memory.index.vector_index import Chunk
from cadre_memory.operations.writing import ChunkEmbedder
from cadre_memory.settings import read_memory_settings
from cadre_scripted_model import app
from harness.nats_server import NatsServer
from harness.patience import until
from harness.texts import holds
from integration.memory_bench import EVERY, Bench
from integration.memory_index_world import memory

TAKES_CHARS = 700
FILLER = "Nothing of note happened on this day. " * 60


TOO_LARGE = "input is too large to process. increase the physical batch size"


class Endpoint(ThreadingHTTPServer):
    """Answers texts of up to TAKES_CHARS, and longer ones with `status`, in llama.cpp's words. Texts with `poison` are
    too long however short they are, and while it is `down` it answers nothing at all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 500
        self.down = self.documents_down = False
        self.sizes: list[list[int]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        self.sizes.append([len(text) for text in texts])
        if self.down or (self.documents_down and "stored" in "".join(texts)):
            return 503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
        if any(len(text) > TAKES_CHARS or "poison" in text for text in texts):
            error = {"message": TOO_LARGE, "type": "server_error", "code": self.status}
            return self.status, {"error": error}
        return 200, app.answer(body)


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, answer = self.server.answer(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


@asynccontextmanager
async def embedder_of(endpoint: Endpoint, folder: Path) -> AsyncIterator[EndpointEmbedder]:
    settings = read_memory_settings(embeddings_url=endpoint.url, embeddings_model="small", directory=str(folder))
    embedder = await open_embedder(settings)
    assert isinstance(embedder, EndpointEmbedder)
    try:
        yield embedder
    finally:
        await embedder.close()


def chunks_of(*texts: str) -> list[Chunk]:
    return [memory(f"m{number}", text) for number, text in enumerate(texts)]


@pytest.mark.parametrize("status", [400, 413, 500])
async def test_a_chunk_over_the_endpoints_batch_is_embedded_in_parts(
    endpoint: Endpoint, tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status = status
    meters = Meters()
    async with embedder_of(endpoint, tmp_path) as embedder:
        embedding = ChunkEmbedder(embedder, meters)
        with caplog.at_level(logging.WARNING, logger="cadre.memory"):
            windows = await embedding.embed(chunks_of("One.", FILLER, "Three.", f"The end. {FILLER}"))
    assert [len(found) for found in windows] == [1, 4, 1, 4]
    (warned,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert holds(warned.getMessage(), " 4 ", TOO_LARGE)
    assert refused(meters) == {"parts": 2}


async def test_a_text_that_is_refused_however_short_costs_a_few_requests(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meters = Meters()
    async with embedder_of(endpoint, tmp_path) as embedder:
        endpoint.sizes.clear()
        (chunk,) = chunks_of(f"poison {FILLER}")
        windows = await ChunkEmbedder(embedder, meters).embed([chunk])
    assert windows == [[]]
    assert len(endpoint.sizes) <= 24
    assert holds(caplog.text, chunk.id, TOO_LARGE)
    assert refused(meters) == {"words_only": 1}


async def test_an_endpoint_that_is_out_of_order_is_not_asked_for_less(endpoint: Endpoint, tmp_path: Path) -> None:
    async with embedder_of(endpoint, tmp_path) as embedder:
        endpoint.sizes.clear()
        endpoint.down = True
        with pytest.raises(Exception, match="503"):
            await ChunkEmbedder(embedder).embed(chunks_of("One.", "Two."))
    assert len(endpoint.sizes) == 1


def refused(meters: Meters) -> dict[str, float]:
    name = names.MEMORY_REFUSED_CHUNKS.name
    return {one.attributes[names.OUTCOME]: one.sum for one in meters if one.metric.name == name}


# --- the service


async def test_long_memories_have_vectors_and_searches_say_what_lacks(
    nats_server: NatsServer, endpoint: Endpoint, tmp_path: Path
) -> None:
    deployment = Settings(nats_url=nats_server.url, prefix=f"mem{uuid4().hex[:8]}", shards=1)
    mine = Origin(reads=EVERY, writes="agent")
    async with Bench.open(deployment, tmp_path) as bench:
        service = await bench.start(
            CADRE_MEMORY_EMBEDDINGS="openai",
            CADRE_MEMORY_EMBEDDINGS_URL=endpoint.url,
            CADRE_MEMORY_EMBEDDINGS_MODEL="small",
        )
        await bench.remember(f"{FILLER} The old lighthouse keeper paints seagulls.", origin=mine)
        await bench.remember("A short word about a bicycle.", origin=mine)

        async def all_have_vectors() -> bool:
            stored = await bench.everything()
            return bool(stored) and all(one.embedded for one in stored)

        await until(all_have_vectors)
        found = await bench.recall("lighthouse seagulls", origin=mine)
        assert (found["degraded"], found["why"]) == (False, "")
        assert any("embedded in" in line for line in service.lines)
        # Queries have their vectors, what is stored has not.
        endpoint.documents_down = True
        await bench.remember("What is stored now waits.", origin=mine)

        async def says_so() -> bool:
            found = await bench.recall("bicycle", origin=mine)
            return bool(found["degraded"]) and "Loading model" in found["why"]

        await until(says_so)
        endpoint.documents_down = False
        await until(all_have_vectors)

        async def is_well() -> bool:
            return (await bench.recall("bicycle", origin=mine))["degraded"] is False

        await until(is_well)
        await bench.remember("poison in a short text", origin=mine)

        async def tells_of_the_refused() -> bool:
            found = await bench.recall("bicycle", origin=mine)
            return bool(found["degraded"]) and " 1 " in found["why"]

        await until(tells_of_the_refused)
        await bench.remember("Later texts have their vectors.", origin=mine)

        async def later() -> bool:
            return [one.embedded for one in await bench.everything()].count(False) == 1

        await until(later)
