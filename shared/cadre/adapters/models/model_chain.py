"""An agent's models as one: each request says which of them it is for."""

import asyncio
from collections.abc import Callable

from cadre.adapters.models.openai_model import OpenAIModel, unconfirmed
from cadre.adapters.models.request_body import as_seen
from cadre.adapters.models.request_slots import RequestSlots
from cadre.engine.model_request import ModelRequest
from cadre.ports import Blobs, Confirm, ModelReply, OnText
from cadre.settings import ModelSettings
from cadre.spec.model import ModelSpec


class ModelChain:
    """ports.Model over the endpoint of a spec and those of its fallbacks.

    Args:
        settings: the endpoint for a spec that names none, or a function that says before each call which it is by now.
    """

    def __init__(self, spec: ModelSpec, settings: ModelSettings | Callable[[], ModelSettings], blobs: Blobs) -> None:
        now, begin = (None, settings) if isinstance(settings, ModelSettings) else (settings, settings())
        self._specs = [spec, *spec.fallbacks]
        self._slots = RequestSlots()
        self._models = [OpenAIModel(one, begin, blobs, now, self._slots) for one in self._specs]
        self._loading = asyncio.Lock()
        self._is_loaded = False

    @property
    def waiting(self) -> int:
        """Return the calls that wait for one of the requests that `model.parallel` allows at once."""
        return self._slots.waiting

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """Make one call, without retries, to the model that the request is for; the last one where there are fewer.

        Raises ModelUnavailable, ModelRefused.
        """
        return await self.complete_in_turn(request, on_text, unconfirmed)

    async def complete_in_turn(self, request: ModelRequest, on_text: OnText, confirm: Confirm) -> ModelReply:
        """Do as `complete`, and awaits `confirm` once `model.parallel` has let the request through."""
        if not self._is_loaded:
            await self.load()
        chosen = min(request.fallback, len(self._models) - 1)
        request = as_seen(request, self._specs[chosen])
        return await self._models[chosen].complete(request, on_text, confirm)

    async def load(self) -> None:
        """Prepare the first model, once: the first call does so. An agent that waits for its first run has neither the
        time nor the memory of the client library to spare."""
        async with self._loading:
            if not self._is_loaded:
                await self._models[0].load()
                self._is_loaded = True

    async def close(self) -> None:
        """Close the connections."""
        for model in self._models:
            await model.close()

    def missing(self) -> str | None:
        """Say what the settings lack for calls of any of the models; None when nothing."""
        return next((lack for model in self._models if (lack := model.missing()) is not None), None)
