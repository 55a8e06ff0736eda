"""Any OpenAI-compatible endpoint for embeddings, through the `openai` client."""

import math
from typing import Any

from cadre.adapters.models.failure import shown_url, unavailable
from cadre.adapters.models.openai_client import EndpointLost, EndpointRefused, OpenAIClient
from cadre.errors import ModelError, ModelRefused, ModelUnavailable

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
