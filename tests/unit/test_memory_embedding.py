"""Tests of where vectors come from, what is chosen when, and that queries go before what can wait."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cadre.errors import ModelRefused, ModelUnavailable, SettingError, SetupError
from cadre.testing import ModelServer, running_model
from cadre_memory.embedding import local_model
from cadre_memory.embedding.embedder import Fingerprint, WindowVectors
from cadre_memory.embedding.local_model import PriorityLock
from cadre_memory.embedding.open import NO_EMBEDDINGS, describe, open_embedder
from cadre_memory.host import schema_of
from cadre_memory.index.vector_index import Chunk
from cadre_memory.operations.writing import ChunkEmbedder
from cadre_memory.settings import MemorySettings, read_memory_settings
from cadre_scripted_model import app

HERE = local_model.missing() is None


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ModelServer]:
    with running_model() as server:
        yield server


def settings(endpoint: ModelServer, folder: Path, **more: object) -> MemorySettings:
    values = {
        "embeddings_url": endpoint.url,
        "embeddings_model": "scripted",
        "directory": str(folder),
        **more,
    }
    return read_memory_settings(**values)


# --- the choice


async def test_without_any_there_is_none_and_it_is_said() -> None:
    nothing = MemorySettings(embeddings="none")
    assert await open_embedder(nothing) is None
    about, meanings = describe(nothing)
    assert (about, meanings) == (NO_EMBEDDINGS, False)
    assert "CADRE_MEMORY_EMBEDDINGS_URL" in NO_EMBEDDINGS


async def test_an_endpoint_is_preferred_and_its_dimension_found_out(endpoint: ModelServer, tmp_path: Path) -> None:
    embedder = await open_embedder(settings(endpoint, tmp_path))
    assert embedder is not None
    assert embedder.fingerprint == Fingerprint(name="scripted", dim=app.DIMENSIONS)
    [[vector]] = await embedder.documents(["Anna likes tea"])
    assert vector == pytest.approx(app.vector("Anna likes tea"), abs=1e-6)
    assert await embedder.query("Anna likes tea") == pytest.approx(vector)
    await embedder.close()


async def test_an_endpoint_that_was_reached_before_need_not_be_there(endpoint: ModelServer, tmp_path: Path) -> None:
    with running_model() as once:
        first = await open_embedder(settings(once, tmp_path))
        gone = settings(once, tmp_path)
        assert first is not None
        await first.close()
    second = await open_embedder(gone)
    assert second is not None
    assert second.fingerprint == first.fingerprint
    with pytest.raises(ModelUnavailable, match="cannot reach the embeddings endpoint"):
        await second.query("tea")
    await second.close()


async def test_other_dimensions_are_asked_for_and_insisted_on(endpoint: ModelServer, tmp_path: Path) -> None:
    embedder = await open_embedder(settings(endpoint, tmp_path, embeddings_dim=16))
    assert embedder is not None
    assert len(await embedder.query("tea")) == 16
    assert schema_of(embedder).dim == 16
    assert schema_of(embedder) != schema_of(None)
    await embedder.close()


async def test_what_an_endpoint_refuses_is_told_with_its_reason(endpoint: ModelServer, tmp_path: Path) -> None:
    embedder = await open_embedder(settings(endpoint, tmp_path))
    assert embedder is not None
    with pytest.raises(ModelRefused, match="empty") as refused:
        await embedder.documents([""])
    assert refused.value.status == 400
    # One that is refused keeps nothing from the others.
    texts = ["One.", "", "Three.", "Four."]
    chunks = [
        Chunk(id=str(n), memory="m", text=text, scope="run", tree="t", run="t", agent="a", created_at=0, hash="")
        for n, text in enumerate(texts)
    ]
    assert [len(windows) for windows in await ChunkEmbedder(embedder).embed(chunks)] == [1, 0, 1, 1]
    await embedder.close()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"embeddings": "magic"}, "one of auto, openai, local"),
        ({"embeddings": "openai"}, "needs CADRE_MEMORY_EMBEDDINGS_URL"),
        ({"embeddings_url": "localhost:80", "embeddings_model": "m"}, "begin with http"),
        ({"embeddings_url": "http://127.0.0.1/v1"}, "needs CADRE_MEMORY_EMBEDDINGS_MODEL"),
        ({"keep_days": -1}, "at least 0"),
        ({"directory": " "}, "name a folder"),
    ],
)
def test_wrong_settings_say_what_to_do(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        read_memory_settings(**options)


def test_the_server_is_named_as_qdrant_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_URL", "http://qdrant:6333")
    monkeypatch.setenv("CADRE_MEMORY_KEEP_DAYS", "7")
    found = read_memory_settings()
    assert (found.qdrant_url, found.keep_days) == ("http://qdrant:6333", 7.0)


# --- the local model


@pytest.mark.skipif(HERE, reason="the local model is installed")
async def test_a_local_model_that_is_not_installed_says_how() -> None:
    with pytest.raises(SetupError, match="pip install"):
        await open_embedder(MemorySettings(embeddings="local"))


@pytest.mark.skipif(not HERE, reason="the local model is not installed")
async def test_the_local_model_knows_what_belongs_together(tmp_path: Path) -> None:
    embedder = await open_embedder(MemorySettings(embeddings="local", directory=str(tmp_path)))
    assert embedder is not None
    assert embedder.fingerprint.dim == 384
    texts = [
        "Steps to change a forgotten login secret",
        "The weather in Paris is mild",
        "Nothing to see here. " * 200 + "The password can be reset under Settings.",
    ]
    near, far, late = await embedder.documents(texts)
    query = await embedder.query("How do I reset my password?")
    assert math.isclose(sum(x * x for x in query), 1.0, abs_tol=1e-5)
    assert best(query, near) > best(query, far) + 0.3
    # The whole text counts, not only what fits in the first window.
    assert len(late) > 2
    assert best(query, late) > best(query, late[:1]) + 0.2


def best(query: list[float], windows: WindowVectors) -> float:
    return max(sum(x * y for x, y in zip(query, window, strict=True)) for window in windows)


# --- turns


async def test_who_is_asked_for_now_goes_before_what_can_wait() -> None:
    lock, order = PriorityLock(), list[str]()
    begun, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with lock.background():
            begun.set()
            await go.wait()

    async def document(name: str) -> None:
        async with lock.background():
            order.append(name)

    async def query(name: str) -> None:
        async with lock.urgent():
            order.append(name)

    holding = asyncio.create_task(hold())
    await begun.wait()
    tasks = [asyncio.create_task(work) for work in (document("d1"), document("d2"), query("q1"), query("q2"))]
    left = asyncio.create_task(query("gone"))
    await asyncio.sleep(0)
    left.cancel()
    go.set()
    await asyncio.gather(holding, *tasks)
    assert order == ["q1", "q2", "d1", "d2"]
    async with lock.background():
        pass  # no one holds it any more
