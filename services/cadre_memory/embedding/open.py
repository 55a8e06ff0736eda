"""Opens the source of dense vectors: an endpoint, a local model, or none, which every answer says.

An endpoint that fails is never replaced by another model: vectors of two models do not compare. Its queries are
answered by words alone until it is back.
"""

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import msgspec

from cadre.adapters.models.failure import shown_url, unavailable
from cadre.adapters.models.openai_client import EndpointLost, EndpointRefused, OpenAIClient
from cadre.errors import ModelError, ModelRefused, ModelUnavailable, SetupError
from cadre_memory.embedding import local_model
from cadre_memory.embedding.embedder import Embedder, Fingerprint, WindowVectors
from cadre_memory.settings import MemorySettings

_CONNECT_SECONDS = 5.0
_TIMEOUT_SECONDS = 60.0
_SHOWN_CHARS = 300


class OpenAIEmbeddings:
    """The endpoint at `url`. Vectors come back as they are, one per text, in order.

    `key_env` names the variable with the key; `dim` is the dimension to ask for, 0 for the model's own.
    """

    def __init__(self, url: str, name: str, key_env: str, dim: int = 0) -> None:
        self._url = url
        self._name = name
        self._key_env = key_env
        self._dim = dim
        self._endpoint = OpenAIClient(
            self._url, self._key_env, _TIMEOUT_SECONDS, _CONNECT_SECONDS, lambda client: client.embeddings
        )

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text. Raises ModelUnavailable (ask again later), ModelRefused (these texts, or the
        key, or the model's name)."""
        body: dict[str, Any] = {"model": self._name, "input": texts}
        if self._dim:
            body["dimensions"] = self._dim
        try:
            async with self._endpoint.client_for_request() as client:
                answer = await client.embeddings.create(**body)
        except EndpointRefused as error:
            raise self._failed(error) from None
        except EndpointLost as error:
            raise ModelUnavailable(f"cannot reach {self.shown}: {str(error) or 'no answer in time'}") from None
        except (ValueError, TypeError) as error:
            problem = self._endpoint.redacted(str(error))
            raise ModelUnavailable(f"the answer of {self.shown} cannot be used: {problem}") from None
        return self._checked([list(one.embedding) for one in sorted(answer.data, key=lambda one: one.index)], texts)

    @property
    def shown(self) -> str:
        """Return what the endpoint is called in an error's text."""
        return f"the embeddings endpoint {shown_url(self._url)}"

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _checked(self, vectors: list[list[float]], texts: list[str]) -> list[list[float]]:
        if len(vectors) != len(texts):
            raise ModelUnavailable(f"{self.shown} answered {len(vectors)} vectors for {len(texts)} texts")
        if any(not vector or not all(map(math.isfinite, vector)) for vector in vectors):
            raise ModelUnavailable(f"{self.shown} answered a vector that is empty or not finite")
        return vectors

    def _failed(self, error: EndpointRefused) -> ModelError:
        refusal = error.refusal
        message = " ".join(str(error).split())[:_SHOWN_CHARS]
        line = f"{self.shown} answered {refusal.status}: {message}"
        if refusal.passes:
            return unavailable(line, refusal)
        if refusal.status in (401, 403):
            line += f"; check the key in {self._key_env}"
        if refusal.status == 404:
            line += f"; check CADRE_MEMORY_EMBEDDINGS_URL (most end in /v1) and the model name {self._name!r}"
        return ModelRefused(line, status=refusal.status)


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
    """Have the endpoint, if there is one, embed a word. Raises ModelUnavailable, ModelRefused."""
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
