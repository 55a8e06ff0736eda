"""The number of tokens that a model takes, from its endpoint's list of models."""

from typing import Any

from cadre.spec.model import ModelSpec

_KEYS = (
    "n_ctx",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "loaded_context_length",
)
"""The names of the size at llama.cpp, vLLM, OpenRouter, Groq, Mistral and others, most trusted first."""


def listed_context(model: dict[str, Any]) -> int | None:
    """Return the size in one entry of the list of models; None where it has none."""
    places = [model, *(part for part in model.values() if isinstance(part, dict))]
    found = [place.get(key) for key in _KEYS for place in places]
    return next((size for size in found if isinstance(size, int) and size > 0), None)


def context_of(models: Any, name: str) -> int | None:
    """Return the size of the model with this name in an endpoint's list; if the list has one model, that model's."""
    listed = models.get("data") if isinstance(models, dict) else None
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = [one for one in found if one.get("id") == name] or (found if len(found) == 1 else [])
    return listed_context(named[0]) if named else None


def is_unnamed(model: ModelSpec) -> bool:
    """Return whether the spec leaves the size open: it has the default."""
    return model.context == ModelSpec().context
