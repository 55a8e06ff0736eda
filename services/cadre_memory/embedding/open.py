"""Opens the source of dense vectors: an endpoint, a local model, or none, which every answer says.

An endpoint that fails is never replaced by another model: vectors of two models do not compare. Its queries are
answered by words alone until it is back.
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from cadre.adapters.models.openai_embeddings import OpenAIEmbeddings
from cadre.errors import ModelError, ModelRefused, ModelUnavailable, SetupError
from cadre_memory.embedding import local_model
from cadre_memory.embedding.embedder import Embedder, Fingerprint, WindowVectors
from cadre_memory.settings import MemorySettings

log = logging.getLogger("cadre.memory")

NO_EMBEDDINGS = (
    "no embeddings are configured, so words are compared and not meanings: set CADRE_MEMORY_EMBEDDINGS_URL, or"
    " install the local model (docs/memory.md)"
)

_PROBE_TEXT = "dimension"

_PASSING_STATUSES = (408, 409, 429, 502, 503)
"""Statuses that say nothing of the texts."""

_TRY_SECONDS = 30.0
_LONGEST_PAUSE_SECONDS = 30.0


class EndpointEmbedder:
    """Has an OpenAI-compatible endpoint embed texts: one vector per text; the endpoint bounds the text's length.

    Some endpoints answer a text that is too long for them as if they were out of order: their answer to a short text
    distinguishes the two.
    """

    def __init__(self, endpoint: OpenAIEmbeddings, fingerprint: Fingerprint) -> None:
        self._endpoint = endpoint
        self.fingerprint = fingerprint

    async def query(self, text: str) -> list[float]:
        """Return the query's vector."""
        return (await self._embed([text]))[0]

    async def documents(self, texts: list[str]) -> list[WindowVectors]:
        """Return one vector for each text."""
        for is_last in (False, True):
            try:
                return [[vector] for vector in await self._embed(texts)]
            except ModelUnavailable as error:
                if error.status in _PASSING_STATUSES or not await self._answers():
                    raise
                if is_last:
                    raise ModelRefused(f"{error}, and answers a short text", status=413) from None
        raise AssertionError

    async def _answers(self) -> bool:
        try:
            await self._embed([_PROBE_TEXT])
        except ModelError:
            return False
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        vectors = await self._endpoint.embed(texts)
        for vector in vectors:
            if len(vector) != self.fingerprint.dim:
                raise ModelUnavailable(
                    f"{self._endpoint.shown} answers {len(vector)} dimensions, and had"
                    f" {self.fingerprint.dim} before: if its model was changed, restart the service"
                )
        return vectors


async def open_embedder(settings: MemorySettings) -> Embedder | None:
    """Return the embedder that the settings ask for; None if no embedder is available or wanted.

    Waits for an endpoint that was never reached before: without its dimension no index can be opened.
    Raises SetupError.
    """
    choice = settings.embeddings
    if _asks_endpoint(settings):
        endpoint = _endpoint(settings)
        return EndpointEmbedder(endpoint, await _fingerprint_of(endpoint, settings))
    if choice in ("local", "auto"):
        lack = local_model.missing()
        if lack is None:
            return await local_model.open_local(Path(settings.directory) / "models")
        if choice == "local":
            raise SetupError(f"CADRE_MEMORY_EMBEDDINGS=local: {lack}")
    return None


def describe(settings: MemorySettings) -> tuple[str, bool]:
    """Say what `open_embedder` would open, and whether meanings are compared then; opens nothing."""
    choice = settings.embeddings
    if _asks_endpoint(settings):
        return f"{settings.embeddings_model} at {_endpoint(settings).shown}", True
    if choice in ("local", "auto"):
        lack = local_model.missing()
        if lack is None:
            return f"the local model {local_model.NAME}", True
        if choice == "local":
            return f"none: {lack}", False
    return NO_EMBEDDINGS, False


async def try_endpoint(settings: MemorySettings) -> None:
    """Has the endpoint, if there is one, embed a word. Raises ModelUnavailable, ModelRefused."""
    if not _asks_endpoint(settings):
        return
    endpoint = _endpoint(settings)
    try:
        async with asyncio.timeout(_TRY_SECONDS):
            await endpoint.embed([_PROBE_TEXT])
    except TimeoutError:
        raise ModelUnavailable(f"{endpoint.shown} gave no vector within {_TRY_SECONDS:g} s") from None
    finally:
        await endpoint.close()


def _asks_endpoint(settings: MemorySettings) -> bool:
    choice = settings.embeddings
    return choice == "openai" or (choice == "auto" and bool(settings.embeddings_url))


def _endpoint(settings: MemorySettings) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        settings.embeddings_url,
        settings.embeddings_model,
        settings.embeddings_key_env,
        settings.embeddings_dim,
    )


async def _fingerprint_of(endpoint: OpenAIEmbeddings, settings: MemorySettings) -> Fingerprint:
    name = settings.embeddings_model
    if settings.embeddings_dim:
        return Fingerprint(name=name, dim=settings.embeddings_dim)
    file, key = Path(settings.directory) / "embeddings.json", f"{settings.embeddings_url} {name}"
    pause = 0.5
    while True:
        try:
            [vector] = await endpoint.embed([_PROBE_TEXT])
        except ModelError as error:
            if (dim := _known_dimensions(file).get(key)) is not None:
                log.warning("%s; its model had %d dimensions", error, dim)
                return Fingerprint(name=name, dim=dim)
            log.warning("%s; it was never reached before, so the service waits for it", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        else:
            if (known := _known_dimensions(file)).get(key) != len(vector):
                _keep_dimensions(file, known | {key: len(vector)})
            return Fingerprint(name=name, dim=len(vector))


def _known_dimensions(file: Path) -> dict[str, int]:
    """Return the dimensions of endpoints, kept in a file so that a start need not wait for one that is down."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        log.warning("%s is left out: %s", file, error)
        return {}


def _keep_dimensions(file: Path, known: dict[str, int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(known))
    fresh.replace(file)
