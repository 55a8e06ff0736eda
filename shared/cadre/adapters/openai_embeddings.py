"""Any OpenAI-compatible endpoint for embeddings, through the `openai` client."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import TYPE_CHECKING

from cadre.adapters.model_failure import retry_after, root_cause, shown_url
from cadre.daemon_thread import run_in_thread
from cadre.errors import ModelError, ModelRefused, ModelUnavailable
from cadre.settings import MemorySettings, read_secret

if TYPE_CHECKING:
    import openai

PLACEHOLDER_KEY = "none"

_CONNECT_SECONDS = 5.0
_SECONDS = 60.0
_SHOWN = 300


class OpenAIEmbeddings:
    """The endpoint of `settings.embeddings_url`. Vectors come back as they are, one per text, in order."""

    def __init__(self, settings: MemorySettings) -> None:
        self._url = settings.embeddings_url
        self._name = settings.embeddings_model
        self._key_env = settings.embeddings_key
        self._dim = settings.embeddings_dim
        self._client: openai.AsyncOpenAI | None = None
        self._opening = asyncio.Lock()

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Raises ModelUnavailable (ask again later), ModelRefused (these texts, or the key, or the model's name)."""
        import openai

        client = await self._opened()
        dimensions = self._dim or openai.omit
        # `from None` throughout: the client's errors may repeat the key.
        try:
            answer = await client.embeddings.create(model=self._name, input=texts, dimensions=dimensions)
        except openai.APIStatusError as error:
            raise self._failed(error) from None
        except openai.APIConnectionError as error:
            cause = self._hidden(root_cause(error.__cause__ or error))
            raise ModelUnavailable(f"cannot reach {self.shown}: {cause or 'no answer in time'}") from None
        except (openai.APIError, json.JSONDecodeError, ValueError, TypeError) as error:
            raise ModelUnavailable(
                f"the answer of {self.shown} cannot be used: {self._hidden(str(error))}"
            ) from None
        return self._checked(
            [list(one.embedding) for one in sorted(answer.data, key=lambda one: one.index)], texts
        )

    @property
    def shown(self) -> str:
        """The endpoint in an error's text."""
        return f"the embeddings endpoint {shown_url(self._url)}"

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _checked(self, vectors: list[list[float]], texts: list[str]) -> list[list[float]]:
        if len(vectors) != len(texts):
            raise ModelUnavailable(f"{self.shown} answered {len(vectors)} vectors for {len(texts)} texts")
        if any(not vector or not all(map(math.isfinite, vector)) for vector in vectors):
            raise ModelUnavailable(f"{self.shown} answered a vector that is empty or not finite")
        return vectors

    def _failed(self, error: openai.APIStatusError) -> ModelError:
        status = error.status_code
        said = " ".join(self._hidden(error.message).split())[:_SHOWN]
        line = f"{self.shown} answered {status}: {said}"
        if status in (408, 409, 429) or status >= 500:
            wait = retry_after(error.response.headers, time.time())
            return ModelUnavailable(line, status=status, retry_after=wait, rate_limited=status == 429)
        if status in (401, 403):
            line += f"; check the key in {self._key_env}"
        if status == 404:
            line += f"; check CADRE_MEMORY_EMBEDDINGS_URL (most end in /v1) and the model name {self._name!r}"
        return ModelRefused(line, status=status)

    async def _opened(self) -> openai.AsyncOpenAI:
        async with self._opening:
            if self._client is None:
                # Importing takes the better part of a second: the event loop must not stand still for it.
                self._client = await run_in_thread(self._open, "openai")
            return self._client

    def _open(self) -> openai.AsyncOpenAI:
        import openai

        client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key() or PLACEHOLDER_KEY,
            # Who waits how long is the caller's decision.
            max_retries=0,
            timeout=openai.Timeout(_SECONDS, connect=_CONNECT_SECONDS),
            # The client would take these from variables of its own and tell them to any endpoint.
            default_headers={"OpenAI-Organization": openai.omit, "OpenAI-Project": openai.omit},  # type: ignore[dict-item]
        )
        _ = client.embeddings
        return client

    def _key(self) -> str:
        key = read_secret(self._key_env).strip()
        if not (key.isascii() and key.isprintable()):
            raise ModelRefused(f"the key in {self._key_env} holds characters that no key has: set it again")
        return key

    def _hidden(self, text: str) -> str:
        key = read_secret(self._key_env).strip()
        return text.replace(key, "***") if key else text
