"""The model that an agent uses: the section `model` of its file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cadre.spec.names import Bound


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a million tokens, in any currency; prices and budgets of a deployment share one."""

    input: float
    output: float


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model that an agent uses, and how. Defaults come from the environment: `CADRE_MODEL_URL`,
    `CADRE_MODEL_KEY`, `CADRE_MODEL`."""

    name: str = ""
    url: str = ""
    key_env: str = "CADRE_MODEL_KEY"
    """Name of the environment variable that holds the key; the key itself is never in a spec."""
    temperature: float | None = None
    max_tokens: int | None = None
    context: int = 128_000
    """Input and output tokens of one call together; a longer history is summarized."""
    tool_choice: Literal["auto", "required"] = "required"
    stop: bool = True
    """Send stop sequences; false for models that refuse the parameter (answers are cut here in any case)."""
    stream: bool = True
    vision: bool = True
    """Show the model the images that its tools return; false for a model that reads text only."""
    timeout: float = 120.0
    """Seconds without a byte from the endpoint."""
    retries: int = 10
    """Tries after a failure that is not a rate limit."""
    patience: float = 3600.0
    """Seconds that a run goes on waiting through rate limits before it gives up."""
    price: Price | None = None
    """The price of its tokens; None looks it up in the price table (`CADRE_PRICES`)."""
    extra_body: dict[str, Any] = {}
    """Further keys of each request, for what an endpoint has beyond OpenAI's API."""


def model_bounds(model: ModelSpec) -> list[Bound]:
    """Returns the bounds of the section's numbers."""
    price = model.price
    return [
        ("model.timeout", model.timeout, 0.001),
        ("model.context", model.context, 1_000),
        ("model.max_tokens", model.max_tokens, 1),
        ("model.retries", model.retries, 0),
        ("model.patience", model.patience, 0),
        ("model.price.input", price.input if price else None, 0),
        ("model.price.output", price.output if price else None, 0),
    ]
