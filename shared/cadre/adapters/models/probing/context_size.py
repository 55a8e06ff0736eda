"""How many tokens a model takes, as its endpoint's list of models tells."""

from typing import Any

_KEYS = (
    "n_ctx",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "loaded_context_length",
)
"""What the size is called by llama.cpp, vLLM, OpenRouter, Groq, Mistral and others, in the order of trust."""


def listed_context(model: dict[str, Any]) -> int | None:
    """The size in one entry of the list of models; None where it has none."""
    places = [model, *(part for part in model.values() if isinstance(part, dict))]
    found = [place.get(key) for key in _KEYS for place in places]
    return next((size for size in found if isinstance(size, int) and size > 0), None)
