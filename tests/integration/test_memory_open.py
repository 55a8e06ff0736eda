"""Tests of which engine a configuration means, and what is said when it cannot be."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cadre.errors import SettingError, SetupError
from cadre_memory.host import open_index
from cadre_memory.index.qdrant_store import QdrantStore
from cadre_memory.index.vector_index import CollectionGone, IndexRefused, IndexUnavailable, PointSelector
from integration.memory_index_world import ALL, NOWHERE, SMALL, memory, with_words


@asynccontextmanager
async def answering(status: str, body: object) -> AsyncIterator[str]:
    """A server that answers every request alike; its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}"
        writer.write(f"{head}\r\nconnection: close\r\n\r\n".encode() + text)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_file_is_the_default_and_keeps_what_it_has(tmp_path: Path) -> None:
    index = await open_index(SMALL, directory=tmp_path)
    await index.upsert([with_words(memory("m1", "tea"))])
    assert (await index.status()).backend == "sqlite"
    await index.close()
    index = await open_index(SMALL, directory=tmp_path)
    assert await index.count(within=ALL, where=NOWHERE) == 1
    await index.close()


async def test_a_server_that_is_not_there_is_worth_another_try(tmp_path: Path) -> None:
    async with answering("200 OK", {}) as url:
        pass
    with pytest.raises(IndexUnavailable, match="did not answer"):
        await open_index(SMALL, qdrant_url=url, directory=tmp_path)


async def test_an_old_server_is_refused_by_its_version(tmp_path: Path) -> None:
    said = {"title": "qdrant - vector search engine", "version": "1.15.4"}
    async with answering("200 OK", said) as url:
        with pytest.raises(SetupError, match=r"version 1\.15\.4: it must be 1\.19 or newer"):
            await open_index(SMALL, qdrant_url=url, directory=tmp_path)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("404 Not Found", CollectionGone),
        ("503 Service Unavailable", IndexUnavailable),
        ("429 Too Many Requests", IndexUnavailable),
        ("400 Bad Request", IndexRefused),
        ("403 Forbidden", IndexRefused),
    ],
)
async def test_what_a_server_answers_says_what_to_do(status: str, kind: type[Exception]) -> None:
    async with answering(status, {"status": {"error": "because"}}) as url:
        store = QdrantStore.server(url, "a key")
        with pytest.raises(kind) as told:
            await store.count(SMALL.collection("mem"), PointSelector())
        assert type(told.value) is kind
        await store.close()


async def test_a_forbidden_server_cannot_be_started_on(tmp_path: Path) -> None:
    async with answering("401 Unauthorized", {"status": {"error": "Must provide an API key"}}) as url:
        with pytest.raises(SetupError, match="API key"):
            await open_index(SMALL, qdrant_url=url, directory=tmp_path)


@pytest.mark.parametrize("url", ["localhost:6333", "grpc://localhost:6334"])
async def test_a_url_without_http_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="http://"):
        await open_index(SMALL, qdrant_url=url, directory=tmp_path)


@pytest.mark.parametrize("prefix", ["", "a__b"])
async def test_a_prefix_that_could_be_mistaken_is_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="collections"):
        await open_index(SMALL, directory=tmp_path, prefix=prefix)
